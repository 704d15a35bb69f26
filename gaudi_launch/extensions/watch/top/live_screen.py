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
        self._was_suspended = False
        self._former = termios.tcgetattr(sys.stdin.fileno())

    def size(self) -> tuple[int, int]:
        """Return columns and lines."""
        found = shutil.get_terminal_size((80, 24))
        return max(20, found.columns), max(6, found.lines)

    def resized(self) -> bool:
        """Report whether all has to be drawn again."""
        return self._was_suspended or self.size() != self._size

    def enter(self) -> None:
        """Read keys one by one, and draw on a second screen of the terminal."""
        tty.setcbreak(sys.stdin.fileno())
        sys.stdout.write(_ENTER)
        sys.stdout.flush()

    def leave(self) -> None:
        """Restore the terminal.

        Written without Python's buffer, as a signal may interrupt a write.
        """
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._former)
        os.write(sys.stdout.fileno(), _LEAVE.encode())

    def suspend(self, number: int, frame: FrameType | None) -> None:
        """Restore the terminal for Ctrl-Z, and stop until the program is continued."""
        self.leave()
        self._was_suspended = True
        os.kill(os.getpid(), signal.SIGSTOP)

    def show(self, lines: Sequence[str]) -> None:
        """Write the lines that differ from those on the screen."""
        if self._was_suspended:
            self._was_suspended = False
            self._size = (0, 0)
            self.enter()
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


def split_keys(typed: str) -> list[str]:
    """Return the names of keys in what was read from a terminal."""
    found = []
    while typed:
        match = next(
            (each for each in sorted(_SEQUENCES, key=len, reverse=True) if typed.startswith(each)),
            None,
        )
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
    screen = LiveScreen()
    former = signal.signal(signal.SIGTSTP, screen.suspend)
    try:
        screen.enter()
        yield screen
    finally:
        signal.signal(signal.SIGTSTP, former)
        sys.stdout.flush()
        screen.leave()
