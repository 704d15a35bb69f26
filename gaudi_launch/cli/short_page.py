"""A page whose first screen has the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gaudi_launch.cli.console import console, table
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

# rows of a screen of 24 that are left by the command and the prompt
SCREEN = 22
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

    ``warnings`` may be left out, from the last on; ``left_out`` is the name of their count.
    """

    head: Sequence[str | Text]
    columns: Sequence[str] = ()
    rows: Sequence[NotedRow] = ()
    right: Sequence[int] = ()
    tail: Sequence[str | Text] = ()
    warnings: Sequence[str] = ()
    left_out: str = "page.warnings"

    def show(self, *, complete: bool) -> None:
        """Print the page; without ``complete`` what fits a screen, and how much does not."""
        out = console()
        rows, warnings = len(self.rows), len(self.warnings)
        if not complete:
            rows, warnings = self._fitting(out)
        for part in self._parts(rows, warnings):
            # print would join a text into one that folds
            out.print(part, soft_wrap=_is_copied(part) or None)

    def _fitting(self, out: Console) -> tuple[int, int]:
        """Return how many rows and warnings fit, the warnings first."""
        least = min(_LEAST_ROWS, len(self.rows))
        for warnings in range(len(self.warnings), -1, -1):
            for rows in range(min(len(self.rows), SCREEN), least - 1, -1):
                parts = self._parts(rows, warnings)
                if sum(_height(part, out) for part in parts) <= SCREEN:
                    return rows, warnings
        return least, 0

    def _parts(self, rows: int, warnings: int) -> list[RenderableType]:
        parts: list[RenderableType] = [*self.head]
        if rows:
            parts += self._table(self.rows[:rows])
        parts += [*self.tail, *self.warnings[:warnings]]
        left = []
        if rows < len(self.rows):
            left.append(text("page.rows", n=len(self.rows) - rows))
        if warnings < len(self.warnings):
            left.append(text(self.left_out, n=len(self.warnings) - warnings))
        if left:
            parts.append(text("page.more", what=text("common.between").join(left)))
        return parts

    def _table(self, rows: Sequence[NotedRow]) -> list[RenderableType]:
        """Return a table, with each reason once below it."""
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


def _is_copied(part: RenderableType) -> bool:
    return bool(getattr(part, "no_wrap", False))


def _height(part: RenderableType, out: Console) -> int:
    """Return the rows of a part on a screen, where the terminal folds a long line."""
    lines = out.render_lines(part, pad=False)
    cells = [sum(each.cell_length for each in line) for line in lines]
    return sum(max(1, -(-each // out.width)) for each in cells)
