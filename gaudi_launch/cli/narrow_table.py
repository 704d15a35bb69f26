"""A plain table that is readable at any width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType

# blanks between columns with rich's usual padding, and without
_BETWEEN, _BETWEEN_DENSE = 3, 1
# a path or a command may be broken anyhow; it makes no table too wide
_LONGEST_WORD = 24
_WIDE_WORD = 8
# box.SIMPLE_HEAD in ASCII
_ASCII_HEAD = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


@dataclass(frozen=True)
class NarrowTable:
    """Rows below columns.

    Where their parts do not fit side by side, a block of labelled lines for each row.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType | Segment]:
        if console.soft_wrap:
            whole = self._table(None, padding=1, ascii_only=options.ascii_only)
            yield from _without_trailing_blanks(whole, console, options)
            return
        least = [self._longest_word(at) for at in range(len(self.columns))]
        for padding, between in ((1, _BETWEEN), (0, _BETWEEN_DENSE)):
            room = options.max_width - between * (len(least) + 1)
            if sum(least) <= room:
                natural = [self._widest(at) for at in range(len(self.columns))]
                widths = narrowed(natural, least, room)
                fitting = self._table(widths, padding, ascii_only=options.ascii_only)
                yield from _without_trailing_blanks(fitting, console, options)
                return
        yield from self._blocks(console, options)

    def _table(self, widths: Sequence[int] | None, padding: int, *, ascii_only: bool) -> Table:
        drawn = Table(
            title=self.title or None,
            # rich would put another box, with a frame, in place of one that the encoding lacks
            box=_ASCII_HEAD if ascii_only else box.SIMPLE_HEAD,
            title_justify="left",
            pad_edge=False,
            padding=(0, padding),
        )
        for number, name in enumerate(self.columns):
            side: JustifyMethod = "right" if number in self.right else "left"
            width = None if widths is None else widths[number]
            drawn.add_column(name, justify=side, overflow="fold", width=width)
        for row in self.rows:
            drawn.add_row(*row)
        return drawn

    def _widest(self, column: int) -> int:
        cells = [self.columns[column], *(row[column] for row in self.rows)]
        return max(cell_len(line) for cell in cells for line in (cell.splitlines() or [""]))

    def _longest_word(self, column: int) -> int:
        cells = [self.columns[column], *(row[column] for row in self.rows)]
        words = [word for cell in cells for word in cell.split()]
        return max((_least_cells(word) for word in words), default=1)

    def _blocks(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType | Segment]:
        if self.title:
            yield Text(self.title, style="italic")
        labels = min(max(cell_len(name) for name in self.columns), max(1, options.max_width // 2))
        for row in self.rows:
            yield Text(f"{self.columns[0]} {row[0]}", style="bold")
            for name, cell in list(zip(self.columns, row, strict=True))[1:]:
                if cell not in ("", "-"):
                    grid = Table.grid(padding=(0, 1))
                    grid.add_column(no_wrap=True)
                    grid.add_column(overflow="fold")
                    grid.add_row(Text(f"  {set_cell_size(name, labels)}", style="dim"), Text(cell))
                    yield from _without_trailing_blanks(grid, console, options)


def _without_trailing_blanks(
    drawn: Table, console: Console, options: ConsoleOptions
) -> Iterator[Segment]:
    """Yield the lines of a table, none with a blank at its end."""
    for line in console.render_lines(drawn, options, pad=False):
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
        yield from line
        yield Segment.line()


def _least_cells(word: str) -> int:
    """Return the minimum width of a text part.

    Chinese sentences break anywhere.
    """
    is_wide = cell_len(word) > len(word)
    return min(cell_len(word), _WIDE_WORD if is_wide else _LONGEST_WORD)


def narrowed(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return widths of at most ``room`` in total.

    The widest column is reduced first, none below its minimum.

    >>> narrowed([5, 30, 12], [5, 8, 10], 30)
    [5, 13, 12]
    """
    widths = [max(pair) for pair in zip(natural, least, strict=True)]
    while sum(widths) > room:
        wide = [at for at, width in enumerate(widths) if width > least[at]]
        if not wide:
            break
        widths[max(wide, key=lambda at: widths[at])] -= 1
    return widths
