"""Progress of a start: a bar on a terminal, now and then a plain line otherwise. On stderr."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from gaudi_launch.messages import text

if TYPE_CHECKING:
    from gaudi_launch.services.follow import Progress

_PLAIN_EVERY_SECONDS = 10.0


class Bar:
    """Phases and their items; lines said meanwhile stay above it."""

    def __init__(self) -> None:
        from gaudi_launch.cli.output import console

        self._console = console(stderr=True)
        self._bar: Any = None
        self._task: Any = None
        self._shown: tuple[str, int] = ("", -1)
        self._next_plain = 0.0

    def open(self) -> None:
        """Show the bar, on a terminal."""
        if not self._console.is_terminal or self._bar is not None:
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[bucket]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(text("serve.phase_start"), total=None, bucket="", left="")
        self._bar.start()

    def progress(self, progress: Progress) -> None:
        if self._bar is not None:
            self._bar.update(
                self._task,
                description=text(f"serve.phase_{progress.phase}"),
                completed=progress.done,
                total=progress.total or None,
                bucket=progress.bucket,
                left=left(progress.left_seconds),
            )
            return
        now = time.monotonic()
        if progress.phase != self._shown[0] or (progress.done != self._shown[1] and now >= self._next_plain):
            self._shown = (progress.phase, progress.done)
            self._next_plain = now + _PLAIN_EVERY_SECONDS
            self.say(_plain(progress))

    def say(self, line: str) -> None:
        """A line of its own."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def left(seconds: float | None) -> str:
    """A time left in words, "" when it is not known."""
    if seconds is None:
        return ""
    return text("serve.left", time=f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s")


def _plain(progress: Progress) -> str:
    words = [text(f"serve.phase_{progress.phase}")]
    if progress.total:
        words.append(f"{progress.done}/{progress.total}")
    return "  ".join([*words, *(word for word in (progress.bucket, left(progress.left_seconds)) if word)])
