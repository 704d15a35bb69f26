"""Markdown for a terminal whose tables are readable at any width."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, MarkdownElement, TableElement, TableRowElement
from rich.text import Text

from gaudi_launch.cli.narrow_table import NarrowTable


class _ReadableTable(TableElement):
    """A table that becomes a block of lines for each row where it is too wide.

    rich would cut names and values off instead.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = []
        if self.body is not None:
            rows = [_plain_cells(row) for row in self.body.rows]
        # Markdown has no table without a header
        if self.header is not None and self.header.row is not None:
            yield NarrowTable("", _plain_cells(self.header.row), rows)
            yield Text()


def _plain_cells(row: TableRowElement) -> list[str]:
    return [cell.content.plain for cell in row.cells]


class MarkdownPage(Markdown):
    """A page of the documentation for a terminal."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "table_open": _ReadableTable,
    }
