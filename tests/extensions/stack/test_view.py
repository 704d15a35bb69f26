"""A stack after up, apply and down, and the states of its services."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.services.state.registry import ServiceRecord
from gaudi_launch.core.services.stop import Stopped
from gaudi_launch.extensions.stack import view as stack
from gaudi_launch.extensions.stack.change import ChangedStack
from gaudi_launch.extensions.stack.gateway.running import RoutedEngine
from gaudi_launch.extensions.stack.stack_record import StackRecord
from tests.support.views import views

pytestmark = pytest.mark.usefixtures("plain_english")

# as far as the views read one
SITE: Any = SimpleNamespace(
    name="site",
    path=Path("/a b.yaml"),
    gateway=SimpleNamespace(url="http://h:1"),
    models=(SimpleNamespace(name="chat"), SimpleNamespace(name="embed")),
)
CHANGED = ChangedStack(("site-chat.v2",), ("site-chat", "site-old"), "renewed")


def made(**values: Any) -> Any:
    return SimpleNamespace(stack=SITE, **values)


def ended(*names: str) -> Any:
    services = []
    for name in names:
        record = ServiceRecord(name, Path("/s") / name, {}, alive=False)
        services.append(Stopped(record, was_alive=True, left=0, orphans=()))
    return services


RECORD = StackRecord(
    "site",
    "/site.yaml",
    dict.fromkeys(("site-gateway", "site-chat", "site-gone"), "sha256:1"),
    {"site-gateway": "", "site-chat": "chat", "site-gone": "gone"},
)
STATES: Any = [
    SimpleNamespace(
        record=RECORD,
        services=(
            ServiceRecord(
                "site-gateway", Path("/s/g"), {"phase": "ready", "url": "http://h:1"}, alive=True
            ),
            ServiceRecord(
                "site-chat",
                Path("/s/c"),
                {
                    "phase": "failed",
                    "outcome": "died",
                    "error": "Full.",
                    "modules": [0, 1],
                    "url": "http://h:2",
                },
                alive=False,
            ),
        ),
        routed={"site-chat": RoutedEngine("DOWN", 3), "site-old": RoutedEngine("", 1)},
        current=False,
    )
]


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "stack",
        [
            lambda: stack.show_written(made()),
            lambda: stack.show_started(
                SITE, ChangedStack(("site-chat",), gateway="started"), waited=True
            ),
            lambda: stack.show_started(
                SITE, ChangedStack(("site-chat",), gateway="started"), waited=False
            ),
            lambda: stack.show_started(SITE, ChangedStack(), waited=True),
            lambda: stack.show_started(SITE, ChangedStack(gateway="renewed"), waited=True),
            lambda: stack.show_applied(SITE, CHANGED),
            lambda: stack.show_applied(SITE, ChangedStack(gateway="renewed")),
            lambda: stack.show_applied(SITE, ChangedStack()),
            lambda: stack.show_ended("site", ended("site-gateway", "site-chat")),
            lambda: stack.show_ended("site", ended()),
            lambda: stack.show_states(STATES),
            lambda: stack.show_states([]),
        ],
    )


def test_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    site = {"schema": 1, "stack": "site", "url": "http://h:1", "models": ["chat", "embed"]}
    assert stack.started_to_json(SITE, ChangedStack(("site-chat",), gateway="started")) == {
        **site,
        "started": ["site-chat"],
        "gateway": "started",
    }
    assert stack.applied_to_json(SITE, CHANGED) == {
        **site,
        "started": ["site-chat.v2"],
        "ended": ["site-chat", "site-old"],
        "gateway": "renewed",
    }
    stopped = stack.ended_to_json("site", ended("site-chat"))
    assert {**stopped, "stopped": [each["name"] for each in stopped["stopped"]]} == {
        "schema": 1,
        "stack": "site",
        "stopped": ["site-chat"],
    }
    (found,) = stack.states_to_json(STATES)["stacks"]
    services = found.pop("services")
    assert found == {
        "name": "site",
        "file": "/site.yaml",
        "missing": ["site-gone"],
        "current": False,
    }
    keys = ("name", "stack_model", "error", "routed")
    assert [tuple(each[key] for key in keys) for each in services] == [
        ("site-gateway", "", None, None),
        ("site-chat", "chat", "Full.", {"status": "DOWN", "requests": 3}),
    ]
