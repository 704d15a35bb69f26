"""Read pages that show commands with their outputs, and compare the outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = re.compile(r"```(bash|sh|python|text)\n(.*?)```", re.DOTALL)
# what another machine, or another moment, has differently
_NUMBER = re.compile(r"\d[\d,.]*")
_BAR = re.compile(r"[█▒░▓·─]{3,}")


@dataclass(frozen=True)
class Step:
    """A block of a page and its output."""

    kind: str
    code: str
    shown: str = ""


def steps_of(page: str) -> list[Step]:
    """Return the blocks of a page that are run, in their order."""
    found: list[Step] = []
    for kind, code in _BLOCK.findall(page):
        if kind == "text":
            last = found.pop()
            found.append(Step(last.kind, last.code, code))
        else:
            found.append(Step(kind, code))
    return found


def alike(text: str) -> str:
    """Return a line without what differs by run: numbers, bars, blanks.

    >>> alike("Ready after 87 s:   [███░░░] 1,024 MiB")
    'Ready after N s: [BAR] N MiB'
    """
    return " ".join(_BAR.sub("BAR", _NUMBER.sub("N", text)).split())


def missing_lines(shown: str, output: str) -> Iterator[str]:
    """Yield the shown lines that the output does not have, in this order.

    A line of three dots stands for any lines, and three dots at the end of one for its rest.
    """
    left = [alike(line) for line in output.splitlines()]
    for line in shown.splitlines():
        if line.strip() in ("", "..."):
            continue
        beginning, dots, _ = alike(line).partition(" ...")
        found = [each == beginning or bool(dots and each.startswith(beginning)) for each in left]
        if True in found:
            del left[: found.index(True) + 1]
        else:
            yield line
