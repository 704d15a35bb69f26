"""A process is known by its start and its boot."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gaudi_launch.core.services.state.identity import Identity, boot_id, of, start_ticks


def test_this_process_is_alive_and_one_of_another_boot_or_start_is_not() -> None:
    mine = of(os.getpid())
    assert mine is not None and mine.alive
    assert mine == Identity(os.getpid(), start_ticks(os.getpid()) or 0, boot_id())
    for other in (
        Identity(mine.pid, mine.ticks + 1, mine.boot),
        Identity(mine.pid, mine.ticks, "another"),
        Identity(2**22 + 1, mine.ticks, mine.boot),
    ):
        assert not other.alive
        # and gets no signal, which would end this process
        assert other.send(signal.SIGKILL) is False
    assert mine.send(0) is True
    assert of(2**22 + 1) is None


def test_a_process_that_ends_before_the_signal_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = of(os.getpid())
    assert mine is not None
    sent: list[int] = []

    def gone(handle: int, number: int) -> None:
        sent.append(number)
        raise ProcessLookupError

    monkeypatch.setattr(signal, "pidfd_send_signal", gone)
    before = len([*Path("/proc/self/fd").iterdir()])
    assert (mine.send(0), sent) == (False, [0])
    assert len([*Path("/proc/self/fd").iterdir()]) == before
