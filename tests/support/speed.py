"""Limits on CPU time, in seconds of a normal machine.

Other programs may use this one, and it may be slow.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# what `_work` takes on a normal machine; measured: 0.042 s on an AMD EPYC, also when it was busy
_NORMAL = 0.05


def _work() -> float:
    begin = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number * number % 7
    return time.process_time() - begin


def slowness() -> float:
    """Return how many times longer than on a normal machine the same work takes here.

    At least 1.
    """
    return max(1.0, min(_work() for _ in range(3)) / _NORMAL)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Check that the block needs at most this CPU time on a normal machine.

    It is the time of this process.
    """
    begin = time.process_time()
    yield
    took = time.process_time() - begin
    allowed = seconds * slowness()
    assert took <= allowed, f"{took:.2f} CPU seconds of {allowed:.2f}"


def run_within(seconds: float, words: Sequence[str]) -> str:
    """Return the output of a program with a limited CPU time on a normal machine.

    Its start is included; the best of three runs counts.
    """
    took = []
    for _ in range(3):
        seconds_taken, shown = _run(words)
        took.append(seconds_taken)
        if seconds_taken <= seconds:
            return shown
    assert min(took) <= seconds * slowness(), took
    return shown


def times_the_import_of_typer(words: Sequence[str]) -> float:
    """Return the CPU time of an interpreter in units of ``import typer``.

    The best of three runs counts.
    """
    unit = min(_run([sys.executable, "-c", "import typer"])[0] for _ in range(3))
    return min(_run([sys.executable, *words])[0] for _ in range(3)) / unit


def _run(words: Sequence[str]) -> tuple[float, str]:
    """Return the CPU seconds and the output of a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout
