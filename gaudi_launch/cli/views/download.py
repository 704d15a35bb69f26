"""The progress of a download: files, bytes, speed and remaining time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gaudi_launch.cli.console import size_text
from gaudi_launch.cli.progress import ProgressDisplay, ProgressState

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from gaudi_launch.core.models.hub.download import PullProgress


class DownloadView:
    """A bar on a terminal, a line periodically elsewhere."""

    def __init__(self) -> None:
        self._display = ProgressDisplay(_columns)
        self._begin: tuple[float, int] | None = None

    def report(self, progress: PullProgress) -> None:
        self._display.open()
        if not self._display.is_open and not self._display.due():
            return
        files = f"{progress.done_files}/{progress.total_files}"
        current = _current(progress)
        line = f"{files}  {self.line(progress, time.monotonic())}  {current}".rstrip()
        self._display.show(
            ProgressState(line, progress.done_bytes, progress.total_bytes, f"{files} {current}"),
        )

    def line(self, progress: PullProgress, now: float) -> str:
        """Return bytes, share, and from the second line on speed and remaining time.

        The speed is that since the first line.
        """
        done, total = progress.done_bytes, progress.total_bytes
        words = f"{size_text(done)} / {size_text(total)}  {100 * done / max(total, 1):.0f}%"
        if self._begin is None:
            self._begin = (now, done)
            return words
        begin, before = self._begin
        speed = (done - before) / max(now - begin, 0.001)
        if speed <= 0:
            return words
        left = round((total - done) / speed)
        return (
            f"{words}  {size_text(int(speed))}/s  "
            f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}"
        )

    def close(self) -> None:
        self._display.close()


def _columns() -> Sequence[ProgressColumn]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )


def _current(progress: PullProgress) -> str:
    """Return the current file and the part of it that is present."""
    if not progress.current:
        return ""
    return (
        f"{progress.current[-40:]} "
        f"{100 * progress.current_bytes // max(progress.current_total, 1)}%"
    )
