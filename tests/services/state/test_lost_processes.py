"""Processes whose launcher may have ended: the doubt, and the order of their end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.messages import message
from gaudi_launch.services.process.lineage import Above
from gaudi_launch.services.state import identity, orphans
from gaudi_launch.services.state.identity import Identity
from gaudi_launch.services.state.orphans import Orphan, end, look
from gaudi_launch.services.state.registry import Held, LockAnswer

HELD, FREE = LockAnswer(Held.HELD), LockAnswer(Held.FREE)
UNKNOWN = LockAnswer(Held.UNKNOWN, "Permission denied")
SERVICE = "/s/services/chat"


def test_only_processes_without_a_running_launcher_are_found_in_order_of_their_pids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # each process: its lock, what is above it
    facts = {
        9: (FREE, Above.NO_LAUNCHER),
        3: (FREE, Above.LAUNCHER),
        5: (HELD, Above.NO_LAUNCHER),
        4: (UNKNOWN, Above.LAUNCHER),
        7: (FREE, Above.HIDDEN),
        6: (FREE, Above.NO_LAUNCHER),
    }
    monkeypatch.setattr(orphans, "_marked", lambda: [(pid, SERVICE) for pid in facts])
    monkeypatch.setattr(orphans, "_ask_lock", lambda pid, service: facts[pid][0])
    monkeypatch.setattr(orphans, "above", lambda pid: facts[pid][1])
    monkeypatch.setattr(orphans, "_is_elsewhere", lambda pid: pid == 7)
    monkeypatch.setattr(orphans, "_command", lambda pid: f"vllm {pid}")

    def of(pid: int) -> Identity | None:
        # one that has ended meanwhile
        return None if pid == 6 else Identity(pid, 1, "b")

    monkeypatch.setattr(identity, "of", of)
    found = look()
    assert found.dead == (Orphan(Identity(9, 1, "b"), "vllm 9", SERVICE),)
    assert found.unsure == (
        Orphan(Identity(3, 1, "b"), "vllm 3", SERVICE, message("services.doubt_launcher")),
        Orphan(Identity(7, 1, "b"), "vllm 7", SERVICE, message("services.doubt_hidden"), True),
    )
    assert orphans.orphans() == [*found.dead]
    assert [each.to_json() for each in (*found.dead, found.unsure[1])] == [
        {"pid": 9, "command": "vllm 9", "service": "chat", "folder": SERVICE},
        {
            "pid": 7,
            "command": "vllm 7",
            "service": "chat",
            "folder": SERVICE,
            "reason": message("services.doubt_hidden").render(),
        },
    ]


class Process:
    """A process that ends by a signal, or is another user's."""

    def __init__(self, pid: int, ends_by: int | None, *, ours: bool = True) -> None:
        self.pid, self.ends_by, self.ours = pid, ends_by, ours
        self.alive = True
        self.signals: list[int] = []

    def send(self, number: int) -> bool:
        self.signals.append(number)
        if not self.ours:
            raise PermissionError
        if not self.alive:
            return False
        self.alive = number != self.ends_by
        return True


def test_what_is_left_is_told_waited_for_and_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    term, kill = signal.SIGTERM, signal.SIGKILL
    gentle, deaf, stuck = Process(1, term), Process(2, kill), Process(3, None)
    foreign, gone = Process(4, None, ours=False), Process(5, None)
    gone.alive = False
    everyone: Any = [gentle, deaf, stuck, foreign, gone]
    found = [Orphan(process, "x", SERVICE) for process in everyone]
    assert end(found) == [found[2], found[3]]
    assert [process.signals for process in everyone] == [
        [term],
        [term, kill],
        [term, kill],
        [term, kill],
        [term],
    ]
    assert clock[0] == pytest.approx(20.0, abs=0.2)
    clock[0] = 0.0
    gentle.alive = True
    assert (end(found[:1]), clock[0]) == ([], 0.0)
    assert end([]) == []


GONE = 2**22 + 1


def test_a_process_that_is_gone_or_hidden_proves_nothing(tmp_path: Path) -> None:
    answer = orphans._ask_lock(GONE, str(tmp_path))
    assert (answer.held, answer.why) == (Held.UNKNOWN, "No such file or directory")
    assert orphans._is_elsewhere(GONE) is True
    assert orphans._is_elsewhere(os.getpid()) is False
    assert orphans.is_of(GONE, str(tmp_path), tmp_path) is False
    assert orphans.is_of(os.getpid(), str(tmp_path), tmp_path) is True
    assert orphans.is_of(os.getpid(), str(tmp_path / ".."), tmp_path) is False
    assert (orphans.service_of(GONE), orphans._command(GONE)) == (None, "?")


def test_a_process_is_shown_by_its_arguments_in_plain_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = []
    for content in (b"vllm\0--a\xff\x1b\0\0", b"", b"v" * 300):
        monkeypatch.setattr(Path, "read_bytes", lambda path: content)  # noqa: B023
        shown.append(orphans._command(7))
    assert shown == ["vllm --a??", "?", "v" * 200]
