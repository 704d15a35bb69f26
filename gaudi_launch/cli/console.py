"""The one place that prints: JSON for programs, tables and sentences for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def emit_json(document: dict[str, Any]) -> None:
    """Print one JSON object on stdout; the caller puts ``"schema": 1`` in it."""
    print(json.dumps(document, ensure_ascii=False, indent=2))


def console(stderr: bool = False) -> Console:
    """A rich console that respects NO_COLOR, pipes and COLUMNS. Progress and logs use ``stderr=True``."""
    from rich.console import Console

    # in a pipe rich would fold at 80 columns and break lines that programs grep
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 200
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False, emoji=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> Any:
    """A plain rich table; ``right`` are the numbers of right-aligned columns."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    drawn = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for number, name in enumerate(columns):
        drawn.add_column(name, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(escape(cell) for cell in row))
    return drawn
