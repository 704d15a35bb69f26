"""CPU lists as the kernel writes them: "0-39,80-119"."""

from __future__ import annotations

import re
from collections.abc import Iterable


def parse_cpus(text: str) -> tuple[int, ...]:
    """Return ascending CPU numbers of a kernel list.

    Blanks are allowed; anything else than numbers and ranges is ignored.

    >>> parse_cpus("0-2, 8")
    (0, 1, 2, 8)
    """
    numbers: set[int] = set()
    for part in text.replace(" ", ",").split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            continue
        first, last = int(match["first"]), int(match["last"] or match["first"])
        if last - first < 100_000:
            numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


_PART = re.compile(r"(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?")


def format_cpus(cpus: Iterable[int]) -> str:
    """Return the shortest kernel list of these CPUs.

    >>> format_cpus([0, 1, 2, 8])
    '0-2,8'
    """
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(map(_run, runs))


def _run(cpus: list[int]) -> str:
    """Return neighbouring CPUs as ``first-last``, a single one as its number."""
    if len(cpus) == 1:
        return str(cpus[0])
    return f"{cpus[0]}-{cpus[-1]}"
