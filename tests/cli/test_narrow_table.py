"""Tables where their words do not fit side by side."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gaudi_launch.cli.narrow_table import NarrowTable, narrowed

TABLE = NarrowTable(
    "", ("name", "cards", "reason"), (("one", "2", "it fits"), ("two", "-", "no room left")), (1,)
)


def shown(width: int, *, terminal: bool = True) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=terminal, no_color=True).print(TABLE)
    plain = stream.getvalue().replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    return [line.rstrip() for line in plain.splitlines() if line.strip()]


def test_a_narrow_one_gets_a_block_for_each_row_without_empty_cells() -> None:
    assert shown(16) == [
        "name one",
        "  cards  2",
        "  reason it fits",
        "name two",
        "  reason no room",
        "         left",
    ]


def test_a_pipe_gets_a_table_at_any_width() -> None:
    assert shown(60, terminal=False)[0].split() == ["name", "cards", "reason"]


@pytest.mark.parametrize(
    ("natural", "least", "room", "expected"),
    [
        ([3, 4], [1, 1], 10, [3, 4]),
        ([10, 20], [5, 5], 20, [10, 10]),
        ([10, 20], [10, 5], 12, [10, 5]),
        ([2, 2], [4, 1], 9, [4, 2]),
    ],
)
def test_the_widest_column_gives_way_down_to_its_longest_word(
    natural: list[int], least: list[int], room: int, expected: list[int]
) -> None:
    assert narrowed(natural, least, room) == expected
