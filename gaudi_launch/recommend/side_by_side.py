"""Independent pieces of work in two processes: this one and a fork of it."""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Sequence[Callable[[], T]]

# bytes of a piece's number in the pipe from which both processes take the next one
_NUMBER = 2
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def side_by_side(work: Work[T], show: Callable[[int], None], *, two: bool) -> list[T]:
    """Return the results of ``work`` in its order, half of them from a fork.

    ``show`` receives how many pieces are begun. ``two`` False, a single processor or one piece:
    all in this process. The fork ends with this call, also at Ctrl-C, and with this process. A
    piece that fails in it is done again here, where its error is raised.
    """
    if not two or len(work) < 2 or len(os.sched_getaffinity(0)) < 2:
        found: list[T] = []
        for number, piece in enumerate(work, 1):
            found.append(piece())
            show(number)
        return found
    known = _shared(work, show)
    return [known[at] if at in known else work[at]() for at in range(len(work))]


def _shared(work: Work[T], show: Callable[[int], None]) -> dict[int, T]:
    """Return the results by number that this process and its fork have made."""
    claims = _claims(len(work))
    received, sent = os.pipe()
    parent = os.getpid()
    # a Ctrl-C between the fork and the try would leave the fork behind
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    pid = os.fork()
    if not pid:
        _help(work, claims, sent, parent)
    try:
        os.close(sent)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        found: dict[int, T] = {}
        for at in _claimed(claims):
            found[at] = work[at]()
            show(at + 1)
        with os.fdopen(received, "rb", closefd=False) as file:
            data = file.read()
        if data:
            found.update(pickle.loads(data))
        else:
            _log.debug("the fork %d ended without results", pid)
        return found
    finally:
        os.close(claims)
        os.close(received)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _help(work: Work[T], claims: int, sent: int, parent: int) -> NoReturn:
    """End the fork after its share of the work, whose results it sends."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if os.getppid() == parent:
            found = {at: work[at]() for at in _claimed(claims)}
            with os.fdopen(sent, "wb") as file:
                pickle.dump(found, file)
    finally:
        # nothing of the parent's may be flushed or cleaned up twice
        os._exit(0)


def _claims(count: int) -> int:
    """Return a pipe to read the numbers from 0 to below ``count`` from, each once."""
    numbers, written = os.pipe()
    os.write(written, b"".join(at.to_bytes(_NUMBER, "little") for at in range(count)))
    os.close(written)
    return numbers


def _claimed(claims: int) -> Iterator[int]:
    while number := os.read(claims, _NUMBER):
        yield int.from_bytes(number, "little")
