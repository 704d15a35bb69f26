"""Progress: one bar on a terminal, and the lines that a pipe gets."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from gaudi_launch.cli import progress
from gaudi_launch.cli.progress import LaunchBar, ProgressDisplay, ProgressState
from gaudi_launch.core.services.log.follow import LaunchProgress


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, plain_english: None) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_quiet_prints_no_progress(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    display = ProgressDisplay(quiet=True)
    display.show(ProgressState("hidden"), at_once=True)
    assert capsys.readouterr().err == ""


def test_a_launch_prints_each_phase_at_once_and_items_now_and_then(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = LaunchBar()
    bar.open()
    bar.progress(LaunchProgress(phase="load"))
    bar.progress(LaunchProgress(phase="warmup_prompt", done=1, total=8))
    clock.now += 9
    bar.progress(LaunchProgress(phase="warmup_prompt", done=2, total=8))
    clock.now += 1
    bar.progress(LaunchProgress(phase="warmup_prompt", done=3, total=8))
    clock.now += 60
    bar.progress(LaunchProgress(phase="warmup_prompt", done=3, total=8))
    bar.close()
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 3
    assert [line.rpartition("  ")[2] for line in printed[1:]] == ["1/8", "3/8"]


_LAUNCH_ON_TERMINAL = """
from gaudi_launch.cli.progress import LaunchBar
from gaudi_launch.core.services.log.follow import LaunchProgress
bar = LaunchBar("expected time")
bar.note("a sentence of several words that is longer than the terminal is wide")
bar.open()
bar.progress(LaunchProgress(phase="warmup_prompt", done=2, total=8))
bar.say("a line of the engine")
bar._live.refresh()
bar.close()
bar.progress(LaunchProgress(phase="warmup_decode", done=1, total=3))
bar.say("the end")
"""


def test_a_launch_on_a_terminal_is_a_panel_that_leaves_nothing_behind() -> None:
    shown = on_terminal(_LAUNCH_ON_TERMINAL, columns=50)
    assert "a sentence of several words that is longer than\r\nthe terminal is wide" in shown
    assert "warming up prompts" in shown
    assert "2/8" in shown
    assert "expected time; " in shown
    # progress after the panel is closed is not printed
    assert "warming up decode" not in shown
    assert shown.endswith("the end\r\n")


_ON_TERMINAL = """
from rich.progress import BarColumn, TextColumn
from gaudi_launch.cli.progress import ProgressDisplay, ProgressState
display = ProgressDisplay(lambda: (TextColumn("{task.description}"), BarColumn(),
                                   TextColumn("{task.fields[x]}")))
display.open("begin", {"x": ""})
assert display.is_open
display.say("above")
display.show(ProgressState("never printed", 1, 2, "under way", {"x": "field"}))
display._bar.refresh()
display.close()
"""


def on_terminal(program: str, columns: int) -> str:
    """Run a program and return what it writes to a terminal on stderr."""
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "TERM": "xterm",
        "COLUMNS": str(columns),
        "GAUDI_LAUNCH_LANG": "en",
    }
    environment.pop("NO_COLOR", None)
    try:
        subprocess.run([sys.executable, "-c", program], stderr=theirs, env=environment, check=True)
    finally:
        os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    return shown


def test_a_terminal_gets_a_bar_and_no_lines() -> None:
    shown = on_terminal(_ON_TERMINAL, columns=100)
    assert "above" in shown
    assert "under way" in shown
    assert "field" in shown
    assert "never printed" not in shown


def test_a_reader_that_goes_away_ends_nothing() -> None:
    program = (
        "from gaudi_launch.cli.console import say\nfor n in range(9): say('x' * 9)\nprint('done')"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=writing, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stdout) == (0, b"done\n")
