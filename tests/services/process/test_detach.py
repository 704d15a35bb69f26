"""The launcher of a service: what it gets, what it records, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text
from gaudi_launch.planning.plan import Command
from gaudi_launch.services.process import detach
from gaudi_launch.services.process.detach import spawn
from gaudi_launch.services.process.signals import HANDLED
from gaudi_launch.services.process.supervise import EngineOutcome
from gaudi_launch.services.state import store
from gaudi_launch.services.state.job import ServiceJob
from tests.support.refusals import refused

JOB = ServiceJob("chat", "m", "/m", "e@1", "http://127.0.0.1:1", Command(("x",), {}))


@pytest.fixture
def folder(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "en")
    monkeypatch.setattr(time, "time", lambda: 100.0)
    return store.make_dir("chat")


class Child:
    pid = 4711


def test_the_launcher_gets_its_files_environment_and_locks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[list[str], dict[str, Any]]] = []

    def popen(argv: list[str], **words: Any) -> Child:
        started.append((argv, words))
        return Child()

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert spawn(JOB, {"argv": ["x"]}, {"SECRET": "s"}, (7, 8)) == 4711
    ((argv, words),) = started
    module = "gaudi_launch.services.process.detach"
    assert argv == [sys.executable, "-m", module, "chat", "7,8"]
    output = words.pop("stdout")
    assert output == words.pop("stderr")
    assert words == {
        "stdin": subprocess.DEVNULL,
        "env": {"SECRET": "s"},
        "pass_fds": (7, 8),
        "start_new_session": True,
        "cwd": "/",
    }
    assert store.read(folder, "job.json") == {"schema": 1, **json.loads(json.dumps(JOB.to_json()))}
    assert (store.read(folder, "plan.json") or {})["argv"] == ["x"]
    assert (store.read(folder, "state.json") or {})["log"] == str(folder / "engine.log")
    assert (folder / "launcher.log").stat().st_mode & 0o777 == 0o600
    assert "SECRET" not in "".join(path.read_text() for path in folder.iterdir())


@pytest.mark.parametrize("number", HANDLED)
def test_a_signal_before_the_engine_is_an_end(folder: Path, number: int) -> None:
    """Also one that comes before the launcher can record it, or twice."""
    path = folder / "lock"
    held = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        pid = spawn(JOB, None, dict(os.environ), (held,))
    finally:
        os.close(held)
    os.kill(pid, number)
    os.kill(pid, number)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == ExitCode.INTERRUPTED
    assert (store.read(folder, "state.json") or {})["outcome"] == "stopped"
    assert "Traceback" not in (folder / "launcher.log").read_text(encoding="utf-8")


def test_a_launcher_that_does_not_start_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def popen(argv: list[str], **words: Any) -> Child:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(subprocess, "Popen", popen)
    with refused(
        "services.not_spawned", ExitCode.FAILED, path=str(folder), why="Permission denied"
    ):
        spawn(JOB, None, {}, (7,))
    assert not (folder / "plan.json").exists() and (folder / "job.json").exists()


def test_a_full_disk_leaves_no_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "write", lambda *words: False)
    with pytest.raises(LaunchError) as caught:
        spawn(JOB, None, {}, (7,))
    assert caught.value.text.values["why"] == "No space left on device"
    assert not folder.exists()


def launch(
    folder: Path, monkeypatch: pytest.MonkeyPatch, run: Any, handles: str = "9"
) -> tuple[int, dict[str, Any]]:
    """Run the launcher's code; return its exit status and the state that it leaves."""
    store.write(folder, "job.json", JOB.to_json())
    monkeypatch.setattr(sys, "argv", ["detach", "chat", handles])
    monkeypatch.setattr(os, "set_inheritable", lambda handle, value: None)
    monkeypatch.setattr(signal, "signal", lambda *words: None)
    monkeypatch.setattr(detach, "run", run)
    with pytest.raises(SystemExit) as caught:
        detach._launch()
    return int(str(caught.value.code)), dict(store.read(folder, "state.json") or {})


@pytest.mark.parametrize(
    ("error", "status", "phase", "written"),
    [
        (KeyboardInterrupt(), 130, "stopped", ""),
        (LaunchError("plan.merged_prefill", ExitCode.USAGE), 2, "failed", None),
        (ValueError("odd"), 1, "failed", "ValueError: odd"),
    ],
)
def test_an_end_without_an_engine_is_recorded(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: int,
    phase: str,
    written: str | None,
) -> None:
    def run(*words: object) -> EngineOutcome:
        raise error

    assert launch(folder, monkeypatch, run) == (
        status,
        {
            "schema": 1,
            "name": "chat",
            "began": 100.0,
            "phase": phase,
            "outcome": phase,
            "error": text("plan.merged_prefill") if written is None else written,
            "error_id": "",
            "ended": 100.0,
        },
    )
    store.write(folder, "state.json", {"name": "chat", "began": 5.0, "url": "u"})
    kept = launch(folder, monkeypatch, run)[1]
    assert (kept["began"], kept["url"]) == (5.0, "u")


def test_a_full_disk_loses_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*words: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("builtins.print", full)
    detach._say("a line")
