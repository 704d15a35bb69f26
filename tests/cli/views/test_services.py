"""``ps`` on terminals of several sizes: running services, and the failed ones that need
attention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.cli.views import services as views
from gaudi_launch.core.services.metrics import EngineLoad
from gaudi_launch.core.services.state import registry, store
from gaudi_launch.core.services.state.registry import ServiceRecord
from tests.support.cli import golden, reading
from tests.support.screens import screen
from tests.support.service_record import service
from tests.support.views import views as goldens


@pytest.fixture
def ended(plain_english: None, tmp_path: Path) -> Path:
    """Three services whose launchers ended: one failed, one was lost, one was stopped."""
    for name, phase in (("broken", "failed"), ("gone", "ready"), ("quiet", "stopped")):
        store.make_dir(name)
        state = {
            "name": name,
            "phase": phase,
            "model": "/models/Qwen3-8B",
            "engine": "vllm-fork@1.21",
        }
        ending = (
            {"outcome": "died", "error": "The KV cache cannot hold one request."}
            if phase == "failed"
            else {}
        )
        ending = {"outcome": "stopped"} if phase == "stopped" else ending
        where = {"modules": [0, 1], "url": "http://127.0.0.1:30001"}
        store.write(store.service_dir(name), "state.json", {**state, **ending, **where})
    return tmp_path


def test_failed_and_lost_services_are_shown_stopped_ones_are_not(
    ended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ps"]) == 0
    out = capsys.readouterr().out
    assert ("broken" in out, "gone" in out, "quiet" in out) == (True, True, False)
    assert out.splitlines()[-3:] == [
        "Failed (gaudi-launch ps --prune removes them):",
        "  broken  The KV cache cannot hold one request.",
        "  gone    its launcher exited without a message (killed, or the disk was full)",
    ]


def test_prune_removes_the_failed_ones(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with service("alive", "http://127.0.0.1:1", phase="failed"):
        assert run(["ps", "--prune"]) == 0
        assert capsys.readouterr().out == "broken: removed\ngone: removed\n"
        assert {each.name for each in registry.services()} == {"alive", "quiet"}


def test_the_json_of_ps_has_running_services_only(
    ended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reading(capsys, "ps") == {"schema": 1, "services": []}


def test_nothing_is_said_of_failures_where_all_run(
    ended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("broken", "gone"):
        store.write(
            store.service_dir(name), "state.json", {"phase": "stopped", "outcome": "stopped"}
        )
    with service("alive", "http://127.0.0.1:1", phase="load"):
        assert run(["ps"]) == 0
    out = capsys.readouterr().out
    assert "alive" in out
    assert "failed" not in out


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_screen(ended: Path, language: str) -> None:
    golden(f"screen-ps-{language}.txt", screen(["ps", "--lang", language], home=ended))


def test_rows_of_services(capsys: pytest.CaptureFixture[str], plain_english: None) -> None:
    services = [
        ServiceRecord(
            "a",
            Path("/s/a"),
            {
                "phase": "ready",
                "model": "/models/m",
                "engine": "e@1",
                "modules": [0, 4],
                "url": "http://h:8000",
                "ready_at": 1000.0,
                "restarts": 2,
            },
            alive=True,
        ),
        ServiceRecord(
            "b", Path("/s/b"), {"phase": "load", "done": 2, "total": 9, "ready_at": 0}, alive=True
        ),
        ServiceRecord(
            "c",
            Path("/s/c"),
            {"phase": "failed", "outcome": "died", "error": "Full.", "ready_at": 5.0},
            alive=False,
        ),
        ServiceRecord("d", Path("/s/d"), {"phase": "ready"}, alive=False),
    ]
    progress = {"served": "m", "done": 3, "total": 9, "left_seconds": 7.5, "log": "/l"}
    began = {"pid": 5, "launcher_pid": 4, "began": 900.0, "ready_at": 989.44}
    alive = replace(services[0], state={**services[0].state, **progress, **began})
    # of one that has ended, neither the time nor the progress counts
    failed = {"phase": "failed", "outcome": "died", "error": "Full."}
    ended = replace(alive, state={**alive.state, **failed}, alive=False)
    load = {"a": EngineLoad(3, 1)}
    goldens(
        capsys,
        "services",
        [
            lambda: views.show(services, load, 1090.0, everything=True),
            lambda: views.show(services[:2], {}, 1000.0 + 90061, everything=False),
            lambda: views.show([], {}, 0.0, everything=True),
            lambda: views.show([], {}, 0.0, everything=False),
        ],
        [views.to_json(alive, load["a"], 1000.0), views.to_json(ended, None, 1000.0)],
    )
