"""Signals that are only queued.

One loop waits for time or a signal, whichever comes first, and acts.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections import deque
from collections.abc import Iterator
from types import FrameType

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Queues SIGINT, SIGTERM and SIGHUP while `handled` lasts.

    Off the main thread it only waits.
    """

    def __init__(self) -> None:
        self._queue: deque[int] = deque()
        self._ends: tuple[int, int] | None = None

    def __bool__(self) -> bool:
        return bool(self._queue)

    def take(self) -> int:
        """Return the oldest queued signal. Raises IndexError when there is none."""
        return self._queue.popleft()

    def wait(self, seconds: float) -> None:
        """Wait this number of seconds, or until a signal comes."""
        if self._queue:
            return
        if self._ends is None:
            threading.Event().wait(seconds)
            return
        if select.select([self._ends[0]], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._ends[0], 4096)

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Queue signals instead of ending by them.

        The former handlers are restored afterwards.
        """

        def queue(number: int, _: FrameType | None) -> None:
            self._queue.append(number)

        if self._ends is not None or threading.current_thread() is not threading.main_thread():
            yield
            return
        self._ends = read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        woken = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        former = {number: signal.signal(number, queue) for number in HANDLED}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)
            self._ends = None
            os.close(read_end)
            os.close(write_end)
