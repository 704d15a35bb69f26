"""Processes whose launcher may have ended: the doubt, and the order of their end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.services.process import marks
from gaudi_launch.core.services.state import identity, orphans
from gaudi_launch.core.services.state.orphans import Orphan, end
from tests.support.waiting import GENEROUS, until

SERVICE = "/s/services/chat"
SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"


class Foreign:
    """A process of another user."""

    alive = True

    def send(self, number: int) -> bool:
        raise PermissionError(1, "Operation not permitted")


def test_what_is_left_is_told_waited_for_and_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "_PATIENCE_SECONDS", 0.5)
    with (
        subprocess.Popen(SLEEP) as gentle,
        subprocess.Popen((*SLEEP[:2], DEAF), stdout=subprocess.PIPE) as deaf,
        subprocess.Popen(SLEEP) as gone,
    ):
        assert deaf.stdout is not None and deaf.stdout.readline() == b"\n"
        processes: list[Any] = [identity.of(each.pid) for each in (gentle, deaf, gone)]
        gone.kill()
        gone.wait()
        found = [Orphan(each, "x", SERVICE) for each in (*processes, Foreign())]
        assert end(found) == [found[3]]
        assert (gentle.wait(), deaf.wait()) == (-15, -9)
    monkeypatch.setattr(orphans, "_PATIENCE_SECONDS", GENEROUS)
    began = time.monotonic()
    assert end(found[:3]) == end([]) == []
    assert time.monotonic() - began < GENEROUS / 2


GONE = 2**22 + 1


def test_a_process_that_is_gone_or_hidden_proves_nothing(tmp_path: Path) -> None:
    answer = orphans._ask_lock(GONE, str(tmp_path))
    assert (answer.held, answer.why) == (None, "No such file or directory")
    assert orphans._is_elsewhere(GONE) is True
    assert orphans._is_elsewhere(os.getpid()) is False
    assert marks.is_of(GONE, str(tmp_path), tmp_path) is False
    assert marks.is_of(os.getpid(), str(tmp_path), tmp_path) is True
    assert marks.is_of(os.getpid(), str(tmp_path / ".."), tmp_path) is False
    assert (marks.service_of(GONE), orphans._command(GONE)) == (None, "?")


def test_a_process_is_shown_by_its_arguments_in_plain_letters() -> None:
    shown = []
    for words in (["--a\xff\x1b", "", ""], ["v" * 300]):
        with subprocess.Popen([*SLEEP, *(word.encode("latin-1") for word in words)]) as process:
            until(lambda: _cmdline(process.pid).startswith(sys.executable.encode()), "its start")
            shown.append(orphans._command(process.pid))
            process.kill()
            until(lambda: _cmdline(process.pid) == b"", "its end")
            shown.append(orphans._command(process.pid))
    begin = " ".join(SLEEP)
    long = f"{begin} {'v' * 300}"[:200]
    assert shown == [f"{begin} --a??", "?", long, "?"]


def _cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
