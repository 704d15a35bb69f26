"""A page in a terminal: no cell of a table is cut off, however narrow."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from gaudi_launch.commands.help.markdown_page import MarkdownPage

PAGE = """\
# Title

| name | meaning | default |
|---|---|---|
| `--max-num-batched-tokens N` | Prompt tokens per step. | computed: 2048 for one engine |
| `--json` | One JSON object. |  |

After it.
"""


def shown(width: int) -> list[str]:
    out = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    out.print(MarkdownPage(PAGE))
    assert isinstance(out.file, io.StringIO)
    written = re.sub(r"\x1b\[[\d;]*m", "", out.file.getvalue())
    return [line.rstrip() for line in written.splitlines()]


def test_a_narrow_table_has_a_block_for_each_row() -> None:
    lines = shown(40)
    at = lines.index("name --max-num-batched-tokens N")
    assert lines[at : at + 5] == [
        "name --max-num-batched-tokens N",
        "  meaning Prompt tokens per step.",
        "  default computed: 2048 for one engine",
        "name --json",
        "  meaning One JSON object.",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 110])
def test_nothing_is_cut_off(width: int) -> None:
    text = "\n".join(shown(width))
    assert "…" not in text
    assert "After it." in text
