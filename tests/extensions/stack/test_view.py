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


def test_a_stack_and_its_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
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
        [
            stack.started_to_json(SITE, ChangedStack(("site-chat",), gateway="started")),
            stack.applied_to_json(SITE, CHANGED),
            stack.ended_to_json("site", ended("site-chat")),
            stack.states_to_json(STATES),
        ],
    )
