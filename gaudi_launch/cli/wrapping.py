"""Break text into lines by terminal cells.

Latin text breaks at blanks, Chinese between characters.
"""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from gaudi_launch.cli.streams import folds

# a wide character by itself, or a run of others up to the next space
_UNIT = re.compile(
    r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]|[^\s\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]+"
)
_NEVER_FIRST = "，。：；、）！？”》】"
_NEVER_LAST = "（“《【"

_WIDEST = 100


@dataclass(frozen=True)
class _Unit:
    """An unbreakable part: its text, its start, and whether a blank precedes it."""

    text: str
    start: int
    spaced: bool


def cells(text: str) -> int:
    """Return the terminal cells that a text takes: two for each wide character."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def padded(text: str, width: int) -> str:
    """Return the text with spaces up to ``width`` cells."""
    return text + " " * (width - cells(text))


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a paragraph, each at most ``width`` cells where possible.

    >>> wrapped("one two three", 8)
    ['one two', 'three']
    >>> wrapped("显示服务，等待。", 8)
    ['显示服', '务，等', '待。']
    """
    lines: list[str] = []
    line = ""
    for unit in _units(text):
        gap = " " if line and unit.spaced else ""
        if line and cells(line) + len(gap) + cells(unit.text) > width:
            lines.append(line)
            line = unit.text
        else:
            line += gap + unit.text
    if line:
        lines.append(line)
    return lines


def break_offsets(text: str, width: int) -> list[int]:
    """Return the offsets of the lines of a text, the first excepted.

    Each line has at most ``width`` cells. A part that is wider than a line is broken too.

    >>> break_offsets("显示服务，等待。", 8)
    [3, 6]
    >>> break_offsets("路径 /a/long/path", 8)
    [3, 11]
    """
    offsets: list[int] = []
    used, end = 0, 0
    for unit in _units(text):
        blanks = unit.start - end
        size = cells(unit.text)
        if used + blanks + size > width and used > 0:
            offsets.append(unit.start)
            used, blanks = 0, 0
        used += blanks + size
        end = unit.start + len(unit.text)
        if size > width:
            inside = _folds(unit.text, width)
            offsets += [unit.start + at for at in inside]
            used = cells(unit.text[inside[-1] :])
    return offsets


def _folds(word: str, width: int) -> list[int]:
    """Return the offsets at which a part that is wider than a line is broken."""
    offsets = []
    used = 0
    for at, character in enumerate(word):
        size = cells(character)
        if used > 0 and used + size > width:
            offsets.append(at)
            used = 0
        used += size
    return offsets


def _units(text: str) -> Iterator[_Unit]:
    """Yield unbreakable parts: Latin text without blanks, and wide characters.

    Punctuation stays with the character before it.
    """
    held: _Unit | None = None
    for match in _UNIT.finditer(text):
        piece = match[0]
        spaced = match.start() > 0 and text[match.start() - 1].isspace()
        if held is not None and _together(held.text, piece, spaced):
            held = _Unit(held.text + piece, held.start, held.spaced)
            continue
        if held is not None:
            yield held
        held = _Unit(piece, match.start(), spaced)
    if held is not None:
        yield held


def _together(before: str, after: str, spaced: bool) -> bool:
    if spaced:
        return False
    return after[0] in _NEVER_FIRST or before[-1] in _NEVER_LAST


def folded(sentence: str, stream: TextIO) -> str:
    """Return a sentence in lines of a terminal's width, or of COLUMNS in a pipe."""
    if not folds(stream) or "\n" in sentence or sentence.startswith(" "):
        return sentence
    width = terminal_width()
    if not stream.isatty():
        width = shutil.get_terminal_size().columns
    return "\n".join(wrapped(sentence, width))


def terminal_width() -> int:
    """Return the columns to use: the terminal's or COLUMNS, at most 100.

    In a pipe it is 80.
    """
    return max(20, min(shutil.get_terminal_size((80, 24)).columns, _WIDEST))
