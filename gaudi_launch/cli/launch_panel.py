"""The launch of an engine as one live panel on stderr.

It shows completed phases, the current phase and the time left.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import can_show, labelled
from gaudi_launch.core.base.durations import duration, rough
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.services.log.phase_names import phase_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

    from gaudi_launch.core.services.log.follow import LaunchProgress

_TURNS_PER_SECOND = 8
_MARKS, _ASCII_MARKS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"
_FULL, _EMPTY = "━", "╌"
_ASCII_FULL, _ASCII_EMPTY = "#", "-"
_BAR_WIDTH = 24


class LaunchPanel:
    """The state of a launch; rich draws it repeatedly.

    ``expected`` is a sentence about the expected time.
    """

    def __init__(self, progress: LaunchProgress, expected: str = "") -> None:
        self.progress = progress
        self.expected = expected
        self._began = time.monotonic()

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield from self.lines(console, time.monotonic())

    def lines(self, out: Console, now: float) -> list[Text]:
        """Return the panel's lines at a time of the monotonic clock."""
        from rich.text import Text

        ascii = not can_show(_MARKS + _FULL + _EMPTY, out)
        lines: list[Text] = []
        ended = [
            f"{phase_text(phase.name)} {duration(phase.end - phase.begin)}"
            for phase in self.progress.phases
            if phase.end is not None
        ]
        done = text("screen.panel_comma").join(ended)
        if done:
            lines += labelled(f"  {text('prepare.done')}", Text(done, style="dim"), out)
        marks = _ASCII_MARKS if ascii else _MARKS
        turn = int((now - self._began) * _TURNS_PER_SECOND)
        label = f"{marks[turn % len(marks)]} {text('screen.panel_now')}"
        lines += labelled(label, self._current(ascii=ascii), out)
        lines += labelled(f"  {text('screen.panel_left')}", Text(self._left(now)), out)
        return lines

    def _current(self, *, ascii: bool) -> Text:
        from rich.text import Text

        progress = self.progress
        found = Text(phase_text(progress.phase), style="bold")
        if progress.total:
            full, empty = (_ASCII_FULL, _ASCII_EMPTY) if ascii else (_FULL, _EMPTY)
            cells = round(_BAR_WIDTH * min(1.0, progress.done / progress.total))
            found.append("  ")
            found.append(full * cells, style="green")
            found.append(empty * (_BAR_WIDTH - cells), style="dim")
            found.append(f"  {progress.done}/{progress.total}", style="not bold")
        if progress.bucket:
            found.append(f"  {progress.bucket}", style="not bold dim")
        return found

    def _left(self, now: float) -> str:
        so_far = text("screen.panel_so_far", time=duration(now - self._began))
        if self.progress.left_seconds is not None:
            return f"{left(self.progress)}{text('common.clauses')}{so_far}"
        if self.expected:
            return f"{self.expected}{text('common.clauses')}{so_far}"
        return so_far


def left(progress: LaunchProgress) -> str:
    """Return the time left of the warm-up or another phase, "" when unknown."""
    seconds = progress.left_seconds
    if seconds is None:
        return ""
    is_warmup = progress.phase.startswith(("warmup_", "graph_"))
    return text("screen.left_warmup" if is_warmup else "serve.left", time=rough(seconds))


def live(panel: LaunchPanel, out: Console) -> Any:
    """Return the panel as rich shows it while it changes.

    It is gone when it is stopped.
    """
    from rich.live import Live

    return Live(panel, console=out, transient=True, refresh_per_second=_TURNS_PER_SECOND)
