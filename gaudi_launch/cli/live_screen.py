"""A terminal of complete screens: lines in, keys out.

It is restored at the end, whatever happens."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    "\x1b": "esc",
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
}
# a key may be an escape sequence of several bytes, which arrive together
_MOST_BYTES = 64


class LiveScreen:
    """The terminal of stdin and stdout. Only lines that changed are written."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._size = (0, 0)

    def size(self) -> tuple[int, int]:
        """Return columns and lines."""
        found = shutil.get_terminal_size((80, 24))
        return max(20, found.columns), max(6, found.lines)

    def resized(self) -> bool:
        return self.size() != self._size

    def show(self, lines: Sequence[str]) -> None:
        """Write the lines that differ from those on the screen."""
        if self.resized():
            self._size = self.size()
            self._shown = []
        parts = [] if self._shown else ["\x1b[2J"]
        for number, line in enumerate(lines):
            if number >= len(self._shown) or self._shown[number] != line:
                parts.append(f"\x1b[{number + 1};1H{line}\x1b[0m\x1b[K")
        self._shown = list(lines)
        if parts:
            sys.stdout.write("".join(parts))
            sys.stdout.flush()

    def keys(self, seconds: float) -> list[str]:
        """Return the keys that are pressed within this time; the first one ends the wait."""
        if not select.select([sys.stdin], [], [], max(0.0, seconds))[0]:
            return []
        content = os.read(sys.stdin.fileno(), _MOST_BYTES)
        if not content:
            # the terminal went away
            return ["q"]
        return split_keys(content.decode("utf-8", errors="replace"))

    def again(self, number: int, frame: FrameType | None) -> None:
        """Draw everything again, after the program was suspended."""
        self._shown = []
        tty.setcbreak(sys.stdin.fileno())
        sys.stdout.write(_ENTER)


def split_keys(typed: str) -> list[str]:
    """Return the names of keys in what was read from a terminal."""
    found = []
    while typed:
        match = next((each for each in sorted(_SEQUENCES, key=len, reverse=True) if typed.startswith(each)), None)
        if match is None:
            found.append(typed[0])
            typed = typed[1:]
        else:
            found.append(_SEQUENCES[match])
            typed = typed[len(match) :]
    return found


@contextmanager
def opened() -> Iterator[LiveScreen]:
    """Yield the terminal as a live screen, and restore it afterwards."""
    handle = sys.stdin.fileno()
    former = termios.tcgetattr(handle)
    screen = LiveScreen()
    continued = signal.signal(signal.SIGCONT, screen.again)
    try:
        tty.setcbreak(handle)
        sys.stdout.write(_ENTER)
        sys.stdout.flush()
        yield screen
    finally:
        signal.signal(signal.SIGCONT, continued)
        termios.tcsetattr(handle, termios.TCSADRAIN, former)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
