"""CPU lists as the kernel writes them: "0-39,80-119"."""

from __future__ import annotations

from collections.abc import Iterable


def parse_cpus(text: str) -> tuple[int, ...]:
    """Return ascending CPU numbers of a kernel list.

    Blanks are allowed; anything else than numbers and ranges is ignored.

    >>> parse_cpus("0-2, 8")
    (0, 1, 2, 8)
    """
    numbers: set[int] = set()
    for part in text.replace(" ", ",").split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit()):
            continue
        if not dash:
            numbers.add(int(first))
        elif last.isascii() and last.isdigit() and int(last) - int(first) < 100_000:
            numbers.update(range(int(first), int(last) + 1))
    return tuple(sorted(numbers))


def format_cpus(cpus: Iterable[int]) -> str:
    """Return the shortest kernel list of these CPUs.

    >>> format_cpus([0, 1, 2, 8])
    '0-2,8'
    """
    parts: list[str] = []
    start = last = None
    for cpu in sorted(set(cpus)):
        if last is not None and cpu == last + 1:
            last = cpu
            continue
        if start is not None and last is not None:
            parts.append(str(start) if start == last else f"{start}-{last}")
        start = last = cpu
    if start is not None and last is not None:
        parts.append(str(start) if start == last else f"{start}-{last}")
    return ",".join(parts)
