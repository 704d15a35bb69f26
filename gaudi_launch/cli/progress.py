"""Progress on stderr: a bar on a terminal, a plain line periodically elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli import console
from gaudi_launch.core.services.log.phase_names import phase_text

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from gaudi_launch.cli.launch_panel import LaunchPanel
    from gaudi_launch.core.services.log.follow import LaunchProgress

_PLAIN_EVERY_SECONDS = 10.0

# created with the bar: rich is expensive to import
Columns = Callable[[], "Sequence[ProgressColumn]"]


@dataclass(frozen=True)
class ProgressState:
    """The state of a task.

    ``line`` is what a pipe gets; ``fields`` are those that the bar's columns name.
    """

    line: str
    done: int = 0
    total: int | None = None
    description: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


class ProgressDisplay:
    """A bar on a terminal, a line periodically elsewhere.

    Lines printed during it stay above the bar. Without ``columns`` there are only lines; ``quiet``:
    neither.
    """

    def __init__(self, columns: Columns | None = None, *, quiet: bool = False) -> None:
        self._columns = columns
        self._quiet = quiet
        self._console = console.console(stderr=True)
        self._bar: Any = None
        self._task: Any = None
        self._next_line = 0.0

    @property
    def is_open(self) -> bool:
        """Report whether a bar is shown."""
        return self._bar is not None

    def open(self, description: str = "", fields: Mapping[str, str] | None = None) -> None:
        """Show the bar, on a terminal."""
        if self._columns is None or self._quiet or self.is_open or not self._console.is_terminal:
            return
        from rich.progress import Progress

        self._bar = Progress(*self._columns(), console=self._console, transient=True)
        self._task = self._bar.add_task(description, total=None, **(fields or {}))
        self._bar.start()

    def due(self) -> bool:
        """Return whether a line is due: there is no bar, and the last line is old enough."""
        return self._bar is None and not self._quiet and time.monotonic() >= self._next_line

    def postpone(self) -> None:
        """Count the time to the next line from now."""
        self._next_line = time.monotonic() + _PLAIN_EVERY_SECONDS

    def show(self, state: ProgressState, *, at_once: bool = False) -> None:
        """Move the bar, or print the line where one is due or ``at_once`` is set."""
        if self._bar is not None:
            self._bar.update(
                self._task,
                description=state.description,
                completed=state.done,
                total=state.total,
                **state.fields,
            )
            return
        if self._quiet:
            return
        if at_once or self.due():
            self.postpone()
            self.say(state.line)

    def say(self, line: str) -> None:
        """Print a separate line."""
        if self._bar is not None:
            self._bar.console.print(line)
        else:
            console.say(line)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class LaunchBar:
    """The progress of a launch: a live panel on a terminal, lines elsewhere.

    ``expected`` is a sentence on the time to come, until it can be measured.
    """

    def __init__(self, expected: str = "") -> None:
        self._lines = ProgressDisplay()
        self._console = console.console(stderr=True)
        self._panel: LaunchPanel | None = None
        self._live: Any = None
        self._expected = expected
        self._shown: tuple[str, int] = ("", -1)

    def open(self) -> None:
        """Show the panel, on a terminal."""
        if self._live is not None or not self._console.is_terminal:
            return
        from gaudi_launch.cli.launch_panel import LaunchPanel, live
        from gaudi_launch.core.services.log.follow import LaunchProgress

        self._panel = LaunchPanel(LaunchProgress(), self._expected)
        self._live = live(self._panel, self._console)
        self._live.start()

    def progress(self, progress: LaunchProgress) -> None:
        """Show a state; a pipe gets a line per phase, and one periodically for items."""
        is_new_phase = progress.phase != self._shown[0]
        is_new_item = progress.done != self._shown[1]
        if self._panel is not None:
            self._panel.progress = progress
        if self._console.is_terminal:
            # also when the panel is closed: what ends needs no progress
            return
        if is_new_phase or (is_new_item and self._lines.due()):
            self._shown = (progress.phase, progress.done)
            self._lines.show(ProgressState(line=_plain(progress)), at_once=is_new_phase)

    def note(self, line: str) -> None:
        """Print a sentence above the panel, folded at blanks on a terminal."""
        if self._console.is_terminal:
            self._console.print(line)
        else:
            console.say(line)

    def say(self, line: str) -> None:
        """Print a separate line, above the panel."""
        if self._live is not None:
            self._live.console.print(line)
        else:
            console.say(line)

    def close(self) -> None:
        """Remove the panel."""
        if self._live is not None:
            self._live.stop()
            self._live = self._panel = None


def _plain(progress: LaunchProgress) -> str:
    from gaudi_launch.cli.launch_panel import left

    words = [phase_text(progress.phase)]
    if progress.total:
        words.append(f"{progress.done}/{progress.total}")
    return "  ".join([*words, *(word for word in (progress.bucket, left(progress)) if word)])
