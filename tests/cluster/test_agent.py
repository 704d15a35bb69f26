"""Waiting on a host of a cluster while its clock is set."""

from __future__ import annotations

import itertools
import socket
import time

import pytest

from gaudi_launch.cluster import agent


def test_a_clock_that_jumps_does_not_end_the_wait_for_a_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jumps = itertools.count(time.time(), 3600)
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    with socket.socket() as bound:
        # bound but not listening: connections are refused
        bound.bind(("127.0.0.1", 0))
        began = time.monotonic()
        found = agent.listening(
            {"host": "127.0.0.1", "port": bound.getsockname()[1], "seconds": 0.7}
        )
    assert found["open"] is False
    assert time.monotonic() - began >= 0.7
