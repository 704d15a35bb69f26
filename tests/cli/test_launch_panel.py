"""The live panel of a launch, line by line, at two widths and in both languages."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from gaudi_launch.cli.launch_panel import LaunchPanel
from gaudi_launch.core.base.messages import set_language
from gaudi_launch.core.services.log.follow import LaunchPhase, LaunchProgress
from tests.support.cli import golden

WARMING = LaunchProgress(
    phase="warmup_prompt",
    done=45,
    total=159,
    bucket="batch_size:1 seq_len:4096",
    left_seconds=190.0,
    phases=(
        LaunchPhase("start", 100.0, 121.0),
        LaunchPhase("load", 121.0, 196.0, 4),
        LaunchPhase("warmup_prompt", 196.0, None, 45),
    ),
)


pytestmark = pytest.mark.usefixtures("plain_english")


def lines(
    progress: LaunchProgress, width: int = 80, *, expected: str = "", encoding: str = "utf-8"
) -> list[str]:
    """Return the panel 65 s after it was opened."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    out = Console(file=stream, width=width, force_terminal=True)
    panel = LaunchPanel(progress, expected)
    return [line.plain for line in panel.lines(out, panel._began + 65.0)]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_panel_while_it_warms_up(language: str) -> None:
    set_language(language)
    assert all(cell_len(line) <= width for width in (40, 60) for line in lines(WARMING, width))
    shown = lines(WARMING)
    assert len(shown) <= 8
    golden(f"screen-serve-{language}.txt", "".join(line + "\n" for line in shown))


def test_a_terminal_of_ascii_gets_an_ascii_bar() -> None:
    shown = lines(WARMING, encoding="ascii")
    assert all(line.isascii() for line in shown)
    assert "[" not in shown[1]
    assert "#######-----------------  45/159" in shown[1]
