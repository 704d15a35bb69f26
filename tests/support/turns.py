"""Let tests that need a machine for themselves take turns."""

from __future__ import annotations

import fcntl
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def alone(what: str, places: int = 1) -> Iterator[None]:
    """Run the block alone on this machine, or with at most ``places`` others.

    All of them are of the same kind.
    """
    folder = Path(tempfile.gettempdir())
    with ExitStack() as files:
        locks = [
            files.enter_context((folder / f"{what}-{n}.lock").open("w")) for n in range(places)
        ]
        while not any(_take(lock) for lock in locks):
            time.sleep(0.1)
        yield


def _take(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
