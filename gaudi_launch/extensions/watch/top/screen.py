"""The loop of the live view: newest samples, keys, and the screen."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType

from gaudi_launch.cli.colour import is_coloured
from gaudi_launch.cli.streams import shows
from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.extensions.watch.sample import HostSample
from gaudi_launch.extensions.watch.top import case as top
from gaudi_launch.extensions.watch.top.case import WatchRequest
from gaudi_launch.extensions.watch.top.columns import BAD, CHOSEN, DIM, GOOD, TITLE, WARN
from gaudi_launch.extensions.watch.top.state import TopState, press
from gaudi_launch.extensions.watch.top.view import lines, painted
from gaudi_launch.extensions.watch.watched_hosts import WatchedHost, watching

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


_CODES = {DIM: "2", GOOD: "32", WARN: "33", BAD: "1;31", TITLE: "1", CHOSEN: "7"}
# without colours what matters is still marked
_MONOCHROME = {TITLE: "1", CHOSEN: "7", BAD: "1"}
_LOG_LINES = 2000
# the first samples come within this time, or the screen says that it reads
_FIRST_TURN_SECONDS = 0.05
_KEY_TURN_SECONDS = 0.25


class ServiceActions:
    """The actions of the keys on services of this machine."""

    def __init__(self, state: TopState) -> None:
        self._state = state

    def log(self, service: str) -> list[str]:
        try:
            return top.log_lines(service, _LOG_LINES)
        except LaunchError as error:
            return [str(error)]

    def why(self, service: str) -> list[str]:
        from gaudi_launch.commands.services.why.view import lines_of

        try:
            return lines_of(top.explain(service))
        except LaunchError as error:
            return [str(error)]

    def stop(self, service: str) -> None:
        """Stop it in the background: the view continues and shows how it ends."""
        in_background(partial(self._stop, service))

    def _stop(self, service: str) -> None:
        try:
            top.stop_service(service, self._say)
        except LaunchError as error:
            self._say(str(error))
        else:
            self._say(text("watch.stopped", name=service))

    def _say(self, line: str) -> None:
        self._state.message = line


def run(request: WatchRequest) -> None:
    """Show the live view until q or Ctrl-C. Raises LaunchError (USAGE)."""
    hosts = top.watched(request)
    state = TopState(local=not request.hosts and not request.inventory)
    with watching(hosts), opened() as screen:
        _loop(screen, state, hosts, request.interval)


def _loop(screen: LiveScreen, state: TopState, hosts: list[WatchedHost], interval: float) -> None:
    actions = ServiceActions(state)
    state.ascii = not shows(sys.stdout, "▁▂█")
    codes = _CODES if is_coloured(sys.stdout) else _MONOCHROME
    next_update = 0.0
    while True:
        if time.monotonic() >= next_update:
            complete = _update(state, hosts)
            next_update = time.monotonic() + (interval if complete else _FIRST_TURN_SECONDS)
            _draw(screen, state, codes)
        wait = min(_KEY_TURN_SECONDS, max(0.0, next_update - time.monotonic()))
        keys = screen.keys(wait)
        for key in keys:
            if not press(state, key, actions):
                return
        if keys or screen.resized():
            _draw(screen, state, codes)


def _update(state: TopState, hosts: list[WatchedHost]) -> bool:
    """Take the newest samples; return whether every host has one."""
    found: list[HostSample] = [
        sample for sample in (host.now() for host in hosts) if sample is not None
    ]
    complete = len(found) == len(hosts)
    if found and (complete or not state.hosts):
        state.update(found)
    overlay = state.overlay
    if overlay is not None and overlay.again is not None:
        overlay.lines = overlay.again()
    return complete


def _draw(screen: LiveScreen, state: TopState, codes: dict[str, str]) -> None:
    width, height = screen.size()
    # the last column of the last line would scroll some terminals
    shown = lines(state, width - 1, height)
    screen.show([painted(line, lambda style: codes.get(style, "")) for line in shown])
