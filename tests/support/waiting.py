"""Wait for what another process or thread does.

The condition itself is waited for, never a fixed time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from gaudi_launch.core.services.addresses import port_free

# only a test that fails waits this long; a busy machine was seen to need half a minute to start
# Python
GENEROUS = 120.0
_CHANCE = random.SystemRandom()


def until(true: Callable[[], object], what: str = "it", seconds: float = GENEROUS) -> None:
    """Wait for it to be true; ``what`` is what did not happen."""
    deadline = time.monotonic() + seconds
    begin = time.monotonic()
    while not true():
        now = time.monotonic()
        assert now < deadline, f"{what} did not happen within {seconds:.0f} s"
        # polling must not take the CPU from the process that is waited for
        time.sleep(max(0.02, now - begin))
        begin = time.monotonic()


# below those that the kernel gives for port 0
PORTS = range(15_000, 29_000, 2)


def unused_port() -> int:
    """Return an unused port with an unused one above it.

    It is below those that the kernel gives for port 0, so that it is still free when an engine
    opens it seconds later. Workers that draw at the same time draw differently.
    """
    while True:
        port = _CHANCE.choice(PORTS)
        if port_free("127.0.0.1", port) and port_free("127.0.0.1", port + 1):
            return port
