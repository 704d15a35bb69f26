"""The current task as one line on stderr of a terminal, for as long as it lasts.

A pipe gets nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gaudi_launch.cli.streams import shows
from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.messages import Message

# short steps are never shown; nothing is silent for longer than a second
_DELAY_SECONDS = 0.4
_TURN_SECONDS = 0.12
_MARKS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_MARKS = "|/-\\"
_ERASE = "\r\x1b[2K"


class StatusLine:
    """Shows the innermost of the steps that are under way."""

    def __init__(self) -> None:
        self._steps: list[str] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._visible = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def show(self, what: Message) -> Iterator[None]:
        """Show a step while the block runs."""
        if not sys.stderr.isatty():
            yield
            return
        self._begin(what.render())
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Keep the line off the terminal while the block prints there."""
        with self._lock:
            self._erase()
            yield

    def _begin(self, sentence: str) -> None:
        with self._lock:
            self._steps.append(sentence)
            if self._thread is None:
                self._wake.clear()
                self._thread = in_background(self._draw)

    def _end(self) -> None:
        with self._lock:
            self._steps.pop()
            if self._steps:
                return
            self._erase()
            thread, self._thread = self._thread, None
            self._wake.set()
        if thread is not None:
            thread.join()

    def _erase(self) -> None:
        if self._visible:
            self._visible = False
            _write(_ERASE)

    def _draw(self) -> None:
        if self._wake.wait(_DELAY_SECONDS):
            return
        marks = _MARKS if shows(sys.stderr, _MARKS) else _ASCII_MARKS
        turn = 0
        while True:
            with self._lock:
                if self._wake.is_set():
                    return
                line = f"{marks[turn % len(marks)]} {self._steps[-1]}"
                self._visible = True
                _write(_ERASE + _cut(line))
            turn += 1
            self._wake.wait(_TURN_SECONDS)


def _cut(line: str) -> str:
    """Return what fits in one line of the terminal.

    A folded line could not be erased.
    """
    import shutil

    from rich.cells import cell_len, set_cell_size

    columns = shutil.get_terminal_size().columns - 1
    if cell_len(line) <= columns:
        return line
    return set_cell_size(line, columns)


def _write(text: str) -> None:
    if hasattr(sys.stderr, "rich_proxied_file"):
        # rich shows progress, and would keep each text as a line above it
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        # the terminal went away; what is under way does not end for that
        return


status_line = StatusLine()
