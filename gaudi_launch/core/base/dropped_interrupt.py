"""Raise again a Ctrl-C that Python drops in a fork handler or a destructor."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_AGAIN_SECONDS = 0.05


@contextlib.contextmanager
def redelivered() -> Iterator[None]:
    """Raise again a KeyboardInterrupt that Python drops ("Exception ignored in ...").

    For the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former_hook = sys.unraisablehook
    former_alarm = signal.signal(signal.SIGALRM, _again)

    def hook(dropped: Any) -> None:
        if dropped.exc_type is not KeyboardInterrupt:
            former_hook(dropped)
            return
        # an error raised in here would be dropped, too
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = former_hook
        signal.signal(signal.SIGALRM, former_alarm)


def _again(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
