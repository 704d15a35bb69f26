"""Work in background threads, which no exception ends unseen.

All of them are daemons: one that hangs must not keep the program from ending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

_log = logging.getLogger(__name__)


def in_background(work: Callable[[], object]) -> threading.Thread:
    """Start ``work`` in a thread and return it; what it raises is logged."""
    thread = threading.Thread(target=partial(_survived, work), daemon=True)
    thread.start()
    return thread


def _survived(work: Callable[[], object]) -> Exception | None:
    """Return what the work raised, after it is logged."""
    try:
        work()
    except Exception as error:
        _log.exception("background work failed")
        return error
    return None


class Loop:
    """Repeats a turn every some seconds until it is stopped, whatever a turn raises.

    ``failed`` is called with what a turn raised, ``ended`` in the thread at its end. A turn that
    takes long shortens the pause after it, to a quarter at least.
    """

    def __init__(
        self,
        turn: Callable[[], object],
        every: float,
        failed: Callable[[Exception], object] = lambda error: None,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        self._turn = turn
        self._every = every
        self._failed = failed
        self._ended = ended
        self._stop = threading.Event()
        self._succeeded = time.monotonic()

    def start(self) -> None:
        in_background(self._run)

    def stop(self) -> None:
        """Let no other turn begin; returns at once."""
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def age(self) -> float:
        """Return the seconds since a turn succeeded, or since the loop was made."""
        return time.monotonic() - self._succeeded

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            error = _survived(self._turn)
            if error is None:
                self._succeeded = time.monotonic()
            else:
                self._failed(error)
            self._stop.wait(max(self._every / 4, self._every - (time.monotonic() - began)))
        self._ended()
