"""Long steps are shown on a terminal while they last, and leave nothing behind."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_launch.core.base import steps
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.host import machine as host_machine
from gaudi_launch.core.launch import machine

_PROGRAM = """
import sys, time
from gaudi_launch.core.base.steps import shown_by, step
from gaudi_launch.cli.console import say
from gaudi_launch.cli.status_line import status_line
with shown_by(status_line.show):
    with step("screen.step_machine"):
        time.sleep({first})
        with step("screen.step_plan"):
            time.sleep({second})
        time.sleep({second})
    say("a line")
    print("the end", flush=True)
"""


def on_terminal(first: float, second: float, **environment: str) -> str:
    """Run two steps, one in the other, and return what they write to a terminal."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "GAUDI_LAUNCH_LANG": "en", "TERM": "xterm", **environment}
    command = [sys.executable, "-c", _PROGRAM.format(first=first, second=second)]
    try:
        subprocess.run(command, stdout=theirs, stderr=theirs, env=variables, check=True)
    finally:
        os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    return written.decode()


def test_a_long_step_is_shown_with_a_moving_mark_and_erased() -> None:
    written = on_terminal(0.9, 0.9)
    frames = [frame for frame in written.split("\r\x1b[2K") if frame]
    assert [frame for frame in frames if frame.endswith("reading the machine")] != []
    assert [frame for frame in frames if frame.endswith("planning cards, memory and buckets")] != []
    # the outer step is shown again when the inner one ended
    assert frames[-2].endswith("reading the machine")
    marks = {frame[0] for frame in frames if frame.endswith("reading the machine")}
    assert len(marks) > 1
    # what follows is on a line of its own
    assert frames[-1] == "a line\r\nthe end\r\n"


def test_a_quick_step_is_never_shown() -> None:
    assert on_terminal(0.0, 0.0) == "a line\r\nthe end\r\n"


def test_a_terminal_of_ascii_gets_ascii_marks() -> None:
    written = on_terminal(0.8, 0.0, PYTHONIOENCODING="ascii")
    assert written.isascii()
    assert "reading the machine" in written


def test_a_long_step_is_cut_to_the_width_of_the_terminal() -> None:
    written = on_terminal(0.8, 0.0, COLUMNS="12")
    frames = [frame for frame in written.split("\r\x1b[2K") if "reading" in frame]
    assert frames != []
    assert {len(frame) for frame in frames} == {11}


def test_a_pipe_gets_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM.format(first=0.8, second=0.0)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("the end\n", "a line\n")


def test_steps_are_told_to_the_listener_only_inside_it() -> None:
    from contextlib import contextmanager

    told: list[Message] = []

    @contextmanager
    def listener(what: Message):  # type: ignore[no-untyped-def]
        told.append(what)
        yield

    with steps.step("screen.step_plan"):
        pass
    with (
        steps.shown_by(listener),
        steps.step("screen.step_machine"),
        steps.step("screen.step_plan"),
    ):
        pass
    with steps.step("screen.step_plan"):
        pass
    assert told == [message("screen.step_machine"), message("screen.step_plan")]


def test_a_step_that_fails_ends_the_line() -> None:
    from gaudi_launch.cli.status_line import StatusLine

    line = StatusLine()
    with pytest.raises(ValueError), line.show(message("screen.step_plan")):
        raise ValueError
    assert line._steps == []


def test_the_machine_is_read_as_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import contextmanager

    told: list[str] = []

    @contextmanager
    def listener(what: Message):  # type: ignore[no-untyped-def]
        told.append(what.id)
        yield
        told.append("end")

    monkeypatch.setattr(host_machine, "load", lambda name: told.append(f"read {name}"))
    with steps.shown_by(listener):
        machine.load("m")
    assert told == ["screen.step_machine", "read m", "end"]
