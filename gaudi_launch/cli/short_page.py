"""A page whose first screen has the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from gaudi_launch.cli.console import console, table
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

# rows of a terminal for the command and the prompt, and what is left of the smallest usual one
_OTHER_ROWS = 2
SCREEN = 24 - _OTHER_ROWS
# rows of a table that are shown before any warning is left out
_LEAST_ROWS = 3


@dataclass(frozen=True)
class NotedRow:
    """A row of a table, and the reason that is printed below it by its number."""

    cells: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True)
class ShortPage:
    """Sentences, a table with reasons, and sentences below it.

    ``warnings`` are reduced to their first sentences, and left out from the last on, where they do
    not fit; ``left_out`` is the name of their count.
    """

    head: Sequence[str | Text]
    columns: Sequence[str] = ()
    rows: Sequence[NotedRow] = ()
    right: Sequence[int] = ()
    tail: Sequence[str | Text] = ()
    warnings: Sequence[str | Text] = ()
    left_out: str = "page.warnings"

    def show(self, *, complete: bool) -> None:
        """Print the page; without ``complete`` what fits a screen, and how much does not."""
        out = console()
        shown = [*self.head, *self._table(self.rows), *self.tail, *self.warnings]
        if not complete:
            shown = self._fitting(out)
        for part in shown:
            # print would join a text into one that folds
            out.print(part, soft_wrap=_is_copied(part) or None)

    def _fitting(self, out: Console) -> list[RenderableType]:
        """Return the parts that fit: most warnings, then complete ones, then most rows.

        Each part is drawn at most once: with every number of rows and warnings a long page takes
        seconds.
        """
        least, most = (min(rows, len(self.rows)) for rows in (_LEAST_ROWS, SCREEN))
        screen = max(SCREEN, out.height - _OTHER_ROWS) if out.is_terminal else SCREEN
        room = screen - _height([*self.head, *self.tail], out)
        table_height = cache(lambda rows: _height(self._table(self.rows[:rows]), out))
        short = list(map(first_sentence, self.warnings))
        forms = [list(self.warnings)] if short == self.warnings else [list(self.warnings), short]
        noted = [[0, *accumulate(_height([each], out) for each in form)] for form in forms]
        for warnings in range(len(self.warnings), -1, -1):
            for form, heights in zip(forms, noted, strict=True):
                cut = form[:warnings] != list(self.warnings[:warnings])
                for rows in range(most, least - 1, -1):
                    left = self._left(rows, warnings, cut=cut)
                    if table_height(rows) + heights[warnings] + _height(left, out) <= room:
                        table = self._table(self.rows[:rows])
                        return [*self.head, *table, *self.tail, *form[:warnings], *left]
        return [*self.head, *self._table(self.rows[:least]), *self.tail, *self._left(least, 0)]

    def _left(self, rows: int, warnings: int, *, cut: bool = False) -> list[RenderableType]:
        """Return a sentence about what is left out, none where all is shown."""
        left = []
        if rows < len(self.rows):
            left.append(text("page.rows", n=len(self.rows) - rows))
        if warnings < len(self.warnings):
            left.append(text(self.left_out, n=len(self.warnings) - warnings))
        if cut:
            left.append(text("page.complete"))
        return [text("page.more", what=text("common.between").join(left))] if left else []

    def _table(self, rows: Sequence[NotedRow]) -> list[RenderableType]:
        """Return a table, with each reason once below it; nothing without rows."""
        if not rows:
            return []
        reasons = list(dict.fromkeys(row.reason for row in rows if row.reason))
        if not reasons:
            return [table("", self.columns, [row.cells for row in rows], right=self.right)]
        cells = [
            (*row.cells, str(reasons.index(row.reason) + 1) if row.reason else "") for row in rows
        ]
        columns = [*self.columns, text("page.column_reason")]
        drawn = table("", columns, cells, right=(*self.right, len(self.columns)))
        return [drawn, *(f"{number} {each}" for number, each in enumerate(reasons, start=1))]


def command_line(line: str) -> Text:
    """Return a command to be copied: it is never folded."""
    from rich.text import Text

    return Text(line, no_wrap=True, overflow="ignore")


def next_line(command: str) -> Text:
    """Return the line of a page that has the command to type next."""
    return command_line(text("page.next", command=command))


def _is_copied(part: RenderableType) -> bool:
    return bool(getattr(part, "no_wrap", False))


def first_sentence(warning: str | Text) -> str | Text:
    """Return a warning up to the end of its first sentence."""
    plain = str(warning)
    ends = [plain.find(mark) + 1 for mark in ("。", ". ") if 0 < plain.find(mark) + 1 < len(plain)]
    return warning[: min(ends)] if ends and not _is_copied(warning) else warning


def _height(parts: Sequence[RenderableType], out: Console) -> int:
    """Return the rows of parts on a screen, where the terminal folds a long line."""
    lines = [line for part in parts for line in out.render_lines(part, pad=False)]
    cells = [sum(each.cell_length for each in line) for line in lines]
    return sum(max(1, -(-each // out.width)) for each in cells)
