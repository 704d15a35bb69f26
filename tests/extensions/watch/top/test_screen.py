"""The live view on a real terminal: drawn, typed at, and left as it was found."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.extensions.watch.top.screen import split_keys
from tests.support.places import TOP
from tests.support.service_record import service
from tests.support.waiting import GENEROUS

_PLACE = re.compile(r"\x1b\[(\d+);1H")
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal of 80x24 with the program on it."""

    def __init__(self, home: Path, *words: str) -> None:
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.theirs)
        variables = {
            **os.environ,
            "HOME": str(home),
            "TERM": "xterm",
            "PYTHONPATH": str(TOP),
            "LANG": "C.UTF-8",
        }
        for name in ("COLUMNS", "LINES"):
            variables.pop(name, None)
        command = [sys.executable, "-m", "gaudi_launch", "top", *words]
        self.process = subprocess.Popen(
            command, stdin=self.theirs, stdout=self.theirs, stderr=self.theirs, env=variables
        )
        self.written = ""
        self.lines: dict[int, str] = {}

    def until(self, shown: str) -> str:
        """Return the screen as soon as it has this text."""
        deadline = time.monotonic() + GENEROUS
        while shown not in self.screen():
            assert time.monotonic() < deadline, self.screen()
            self._read(0.1)
        return self.screen()

    def screen(self) -> str:
        return "\n".join(self.lines.get(number, "") for number in range(1, 25))

    def type(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def end(self) -> int:
        deadline = time.monotonic() + GENEROUS
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.1)
        self._read(0.2)
        return self.process.wait(1)

    def _read(self, seconds: float) -> None:
        if not select.select([self.ours], [], [], seconds)[0]:
            return
        self.written += os.read(self.ours, 65536).decode(errors="replace")
        pieces = _PLACE.split(self.written)
        for number, text in zip(pieces[1::2], pieces[2::2], strict=True):
            self.lines[int(number)] = _STYLE.sub("", text.partition("\x1b[K")[0]).rstrip()


@pytest.fixture
def terminal(tmp_path: Path, own_folders: Path) -> Iterator[Terminal]:
    with service("mine", "-") as folder:
        (folder / "engine.log").write_text("".join(f"line {number}\n" for number in range(100)))
        made = Terminal(tmp_path, "--machine", "simulated:hls2+busy=1+lost=5")
        yield made
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait()
        os.close(made.ours)
        os.close(made.theirs)


def test_it_is_drawn_typed_at_and_left_as_it_was_found(terminal: Terminal) -> None:
    first = terminal.until("mine")
    assert first.startswith("gaudi-launch top  gaudi2-server gaudi2")
    assert sum(line.rstrip().endswith("-") and "/600" in line for line in first.splitlines()) == 7
    terminal.type("l")
    terminal.until("line 99")
    terminal.type("\x1b")
    terminal.until("q quit")
    terminal.type("x")
    terminal.until("Stop mine?")
    terminal.type("n")
    terminal.until("mine keeps running.")
    terminal.type("/python\r")
    terminal.until("filter: python")
    terminal.type("q")
    assert terminal.end() == 0
    assert terminal.written.rstrip().endswith("\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(terminal.theirs)[3] == terminal.before[3]


def test_ctrl_c_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    terminal.until("mine")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "\x1b[?1049l" in terminal.written and "Traceback" not in terminal.written
    assert termios.tcgetattr(terminal.theirs)[3] == terminal.before[3]


def test_a_terminal_that_changes_its_size_is_drawn_again(terminal: Terminal) -> None:
    terminal.until("mine")
    terminal.lines.clear()
    terminal.written = ""
    fcntl.ioctl(terminal.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 130, 0, 0))
    terminal.until("J/tok")


def test_ctrl_z_gives_the_terminal_back_and_continues(terminal: Terminal) -> None:
    terminal.until("mine")
    terminal.process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert termios.tcgetattr(terminal.theirs)[3] == terminal.before[3]
    terminal._read(0.2)
    assert terminal.written.rstrip().endswith("\x1b[?25h\x1b[?1049l")
    terminal.lines.clear()
    terminal.written = ""
    terminal.process.send_signal(signal.SIGCONT)
    terminal.until("mine")
    assert "\x1b[?1049h" in terminal.written
    terminal.type("q")
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOA", ["up"]),
        ("\x1b", ["esc"]),
        ("\x1b[5~x\x1b[6~", ["pageup", "x", "pagedown"]),
        ("\t\r\n\x7f", ["tab", "enter", "enter", "backspace"]),
        ("中/", ["中", "/"]),
        ("", []),
    ],
)
def test_what_is_typed_becomes_names(typed: str, keys: list[str]) -> None:
    assert split_keys(typed) == keys
