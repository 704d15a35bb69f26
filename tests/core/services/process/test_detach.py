"""The launcher of a service: what it gets, what it records, how it ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.services.process import detach
from gaudi_launch.core.services.process.detach import spawn
from gaudi_launch.core.services.process.signals import HANDLED
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.job import ServiceJob
from tests.support.refusals import refused

JOB = ServiceJob("chat", "m", "/m", "e@1", "http://127.0.0.1:1", Command(("x",), {}))


@pytest.fixture
def folder(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "en")
    return store.make_dir("chat")


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


def test_a_launcher_that_does_not_start_is_named(folder: Path) -> None:
    values = {"path": str(folder), "why": "Argument list too long"}
    with (
        (folder / "lock").open("w") as held,
        refused("services.not_spawned", ExitCode.FAILED, **values),
    ):
        spawn(JOB, None, {"LONG": "x" * (1 << 18)}, (held.fileno(),))
    assert (folder / "job.json").exists()


def test_a_full_disk_leaves_no_files(folder: Path) -> None:
    """As a folder in the place of a file does, which cannot be written either."""
    (folder / "plan.json").mkdir()
    values = {"path": str(folder), "why": "No space left on device"}
    with refused("services.not_spawned", ExitCode.FAILED, **values):
        spawn(JOB, {"argv": ["x"]}, {}, (7,))
    assert not folder.exists()


@pytest.mark.parametrize("known", [{}, {"began": 5.0, "url": "u"}])
@pytest.mark.parametrize(
    ("job", "error", "status"),
    [
        ({}, "cannot be read as a service (.name: missing, expected a value)", ExitCode.FAILED),
        (codec.write(JOB), "OSError: [Errno 22] Invalid argument", ExitCode.FAILED),
    ],
)
def test_an_end_without_an_engine_is_recorded(
    folder: Path, known: dict[str, object], job: dict[str, object], error: str, status: int
) -> None:
    """A job that cannot be read, and the lock of a card that cannot be written."""
    store.write(folder, "job.json", job)
    if known:
        store.write(folder, "state.json", {"name": "chat", **known})
    before = time.time()
    with (folder / "lock").open("w") as name, (folder / "lock").open() as card:
        held = (name.fileno(), card.fileno())
        words = ["chat", ",".join(map(str, held))]
        ended = subprocess.run(
            [sys.executable, "-m", "gaudi_launch.core.services.process.detach", *words],
            pass_fds=held,
            capture_output=True,
            check=False,
        )
    state = dict(store.read(folder, "state.json") or {})
    assert error in str(state.pop("error"))
    assert float(state.pop("ended")) >= before
    began = float(state.pop("began"))
    assert began == known["began"] if known else began >= before
    left = {"url": "u"} if known else {}
    assert (ended.returncode, state) == (
        status,
        {
            "schema": 1,
            "name": "chat",
            "phase": "failed",
            "outcome": "failed",
            "error_id": "",
            **left,
        },
    )


def test_a_full_disk_loses_the_line() -> None:
    with Path("/dev/full").open("w") as full:
        with contextlib.redirect_stdout(full):
            detach._say("a line")
        with pytest.raises(OSError, match="No space left"):
            full.close()
