"""Waiting for what another process or thread does: for the thing itself, never for a time that should be enough."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from gaudi_launch.services.probe import port_free

# only a test that fails waits as long; a busy machine has been seen to need half a minute for a start of Python
GENEROUS = 120.0
_CHANCE = random.SystemRandom()


def until(true: Callable[[], object], what: str = "it", seconds: float = GENEROUS) -> None:
    """Wait for it to be true; ``what`` is what did not happen."""
    deadline = time.monotonic() + seconds
    begin = time.monotonic()
    while not true():
        now = time.monotonic()
        assert now < deadline, f"{what} did not happen within {seconds:.0f} s"
        # asking must not take the CPU from what is asked for
        time.sleep(max(0.02, now - begin))
        begin = time.monotonic()


def unused_port() -> int:
    """A port that nobody has, nor the one above it, from below those that the kernel hands out to whoever asks for
    any: they are still free when an engine opens them seconds later. Workers that draw at once draw differently."""
    while True:
        port = _CHANCE.randrange(15_000, 29_000, 2)
        if port_free("127.0.0.1", port) and port_free("127.0.0.1", port + 1):
            return port
