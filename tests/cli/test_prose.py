"""Chinese on a terminal: lines break between characters, keep their cells and begin with no
closing mark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gaudi_launch.cli.prose import Prose
from gaudi_launch.cli.wrapping import break_offsets


def folded(text: str, width: int) -> list[str]:
    """Return the lines that rich makes of a text."""
    return [line.plain for line in Prose(text).wrap(Console(width=width), width)]


def test_no_line_begins_with_a_closing_mark_or_ends_with_an_opening_one() -> None:
    for width in range(16, 60):
        lines = folded(
            "应为 15000 x 2 MiB（假定值），否则“doctor --fix”可自动处理，“--undo”可撤销。", width
        )
        assert [line for line in lines if line[0] in "，。）”" or line[-1] in "（“"] == []


def test_english_is_folded_as_rich_does_it() -> None:
    sentence = "Reserve 15000 huge pages, now and at every boot."
    plain = Text(sentence).wrap(Console(width=20), 20)
    assert folded(sentence, 20) == [*(line.plain.rstrip() for line in plain[:-1]), plain[-1].plain]


def test_styles_stay_with_their_characters() -> None:
    text = Text.assemble(("警告", "yellow"), "：没有大页内存")
    lines = Prose.of(text).wrap(Console(width=8), 8)
    assert [(line.plain, [str(span.style) for span in line.spans]) for line in lines] == [
        ("警告：没", ["yellow"]),
        ("有大页内", []),
        ("存", []),
    ]


@given(st.text(alphabet="显存预热，。（）“” ab1-/"), st.integers(min_value=4, max_value=40))
def test_nothing_is_lost_and_no_line_is_too_wide(text: str, width: int) -> None:
    starts = [0, *break_offsets(text, width)]
    pieces = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    assert "".join(pieces) == text
    assert [piece for piece in pieces if cell_len(piece.rstrip()) > width] == []
