"""The wait for a service: its progress, its end, the time that is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.launch.waiting import ended
from gaudi_launch.core.services.state.registry import ServiceRecord

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
