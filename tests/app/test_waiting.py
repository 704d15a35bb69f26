"""The wait for a service: its progress, its end, the time that is over."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app import waiting
from gaudi_launch.app.waiting import ended, phase, until_ready
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text
from gaudi_launch.services.log.follow import LaunchPhase, LaunchProgress
from gaudi_launch.services.state import registry
from gaudi_launch.services.state.registry import ServiceRecord
from tests.support.refusals import refused

STATE = {
    "name": "chat",
    "model": "/m",
    "phase": "warmup_prompt",
    "done": 2,
    "total": 8,
    "bucket": "batch 1",
    "left_seconds": 9.0,
    "phases": [{"name": "load", "begin": 1, "end": 2.0, "items": 3}],
}


def service(folder: Path, *, alive: bool, **state: Any) -> ServiceRecord:
    return ServiceRecord("chat", folder, {**STATE, **state}, alive)


def feed(monkeypatch: pytest.MonkeyPatch, *found: ServiceRecord) -> list[float]:
    """Let the service be found in these states; return the pauses, which take no time."""
    left, clock = list(found), {"now": 0.0}
    pauses: list[float] = []

    def find(name: str) -> ServiceRecord:
        return left.pop(0) if len(left) > 1 else left[0]

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock["now"] += seconds

    monkeypatch.setattr(registry, "find", find)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    return pauses


def test_progress_is_passed_on_until_the_service_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = service(tmp_path, alive=True, phase="ready")
    begun = ServiceRecord("chat", tmp_path, {}, True)
    pauses = feed(monkeypatch, begun, service(tmp_path, alive=True), ready)
    seen: list[LaunchProgress] = []
    assert until_ready("chat", progress=seen.append) is ready
    assert pauses == [waiting._POLL_SECONDS] * 2
    assert seen == [
        LaunchProgress(),
        LaunchProgress(
            "warmup_prompt", 2, 8, "batch 1", 9.0, phases=(LaunchPhase("load", 1.0, 2.0, 3),)
        ),
    ]


def test_a_service_that_takes_too_long_is_named_with_its_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = service(tmp_path, alive=True)
    pauses = feed(monkeypatch, running)
    with refused(
        "services.not_yet",
        ExitCode.FAILED,
        name="chat",
        seconds="0.5",
        phase=f"{text('serve.phase_warmup_prompt')} 2/8",
    ):
        until_ready("chat", 0.5)
    assert len(pauses) == 3


def test_a_service_that_ended_between_two_reads_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, ready = service(tmp_path, alive=False), service(tmp_path, alive=True, phase="ready")
    feed(monkeypatch, gone, ready)
    assert until_ready("chat") is ready
    feed(monkeypatch, service(tmp_path, alive=False, phase="stopped", outcome="stopped"))
    with pytest.raises(LaunchError) as caught:
        until_ready("chat")
    assert caught.value.id == "services.is_stopped"


def test_each_end_has_its_error(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("first\nlast line\n")

    def error(**state: Any) -> LaunchError:
        found = ended(service(tmp_path, alive=False, **state))
        assert isinstance(found, LaunchError)
        return found

    failed = error(phase="failed", outcome="failed", error="no card")
    assert (failed.id, failed.exit_code, failed.text.values, failed.detail) == (
        "services.failed",
        ExitCode.FAILED,
        {"name": "chat", "why": "no card"},
        None,
    )
    stopped = error(phase="stopped", outcome="stopped")
    log = str(tmp_path / "launcher.log")
    assert (stopped.id, stopped.exit_code, stopped.text.values) == (
        "services.is_stopped",
        ExitCode.FAILED,
        {"name": "chat", "log": log},
    )
    assert str(stopped.detail).endswith("last line")
    died = error(phase="failed", outcome="died", status=3, detail="why")
    assert died.exit_code == ExitCode.ENGINE and "3" in str(died)


def test_a_phase_is_a_text_with_its_progress(tmp_path: Path) -> None:
    load = text("serve.phase_load")
    assert phase(service(tmp_path, alive=True, phase="ready")) == text("services.phase_ready")
    assert phase(service(tmp_path, alive=True, phase="load", total=0)) == load
    assert phase(service(tmp_path, alive=True, phase="load")) == f"{load} 2/8"
    over = service(tmp_path, alive=False, phase="stopped", outcome="stopped")
    assert phase(over) == text("serve.phase_stopped")
