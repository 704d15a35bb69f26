"""The debug log: children with outcome, failures that are passed over, no secret, one bounded
file."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base import debug_log, interrupt, locks
from gaudi_launch.core.base.child_log import ChildLog

_log = logging.getLogger("gaudi_launch.tests")


@pytest.fixture(autouse=True)
def log(own_folders: Path) -> Path:
    return own_folders / "state" / "gaudi-launch" / "gaudi-launch.log"


def test_a_child_that_is_killed_for_its_time_is_logged_with_its_signal(log: Path) -> None:
    with debug_log.kept(debug=False), pytest.raises(subprocess.TimeoutExpired):
        interrupt.run(["sleep", "60"], seconds=0.2)
    assert re.search(r"sleep\[\d+\]: exit status -9 after", log.read_text())


def test_no_secret_reaches_the_log(log: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with debug_log.kept(debug=True):
        interrupt.run(
            ["true", "--api-key", "letmein-1", "--hf-token=letmein-2", "https://u:letmein-3@host/x"]
        )
        with debug_log.best_effort(_log, "ask the hub", ValueError):
            raise ValueError("refused: Authorization: Bearer letmein-4")
    for written in (log.read_text(), capfd.readouterr().err):
        assert "letmein" not in written
        assert "--api-key" in written
        assert "refused" in written


def test_only_its_user_reads_it(log: Path) -> None:
    log.parent.mkdir(parents=True)
    log.touch(0o644)
    with debug_log.kept(debug=False):
        _log.debug("a line")
    assert log.stat().st_mode & 0o777 == 0o600


_WRITER = """
import logging, sys
from gaudi_launch.core.base import debug_log
debug_log.MOST_BYTES = 20_000
with debug_log.kept(debug=False):
    for number in range(200):
        logging.getLogger("gaudi_launch.x").debug("%s-%d %s end", sys.argv[1], number, "x" * 50)
"""


def test_lines_of_several_processes_stay_complete(log: Path) -> None:
    log.parent.mkdir(parents=True)
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, name]) for name in "abcd"]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    lines = [
        *log.with_name("gaudi-launch.log.1").read_text().splitlines(),
        *log.read_text().splitlines(),
    ]
    assert len(lines) > 100
    assert [
        line for line in lines if not re.search(r"gaudi_launch\.x: [abcd]-\d+ x{50} end$", line)
    ] == []


@pytest.mark.parametrize("kind", ["file as a folder", "link", "pipe", "folder"])
def test_a_log_that_cannot_be_written_is_no_error(
    log: Path, kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if kind == "file as a folder":
        log.parent.parent.mkdir()
        log.parent.touch()
    else:
        log.parent.mkdir(parents=True)
    if kind == "link":
        log.symlink_to(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(log)
    if kind == "folder":
        log.mkdir()
    with debug_log.kept(debug=False):
        assert interrupt.run(["true"]).returncode == 0
    assert capfd.readouterr().err == ""
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(debug_log, "_open", lambda path: os.open("/dev/full", os.O_WRONLY))
    with debug_log.kept(debug=False):
        assert interrupt.run(["true"]).returncode == 0
    assert capfd.readouterr().err == ""


def test_debug_shows_it_on_stderr(log: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["engines", "--python", sys.executable]
    run(arguments)
    assert "gaudi_launch.core.base.interrupt" not in capfd.readouterr().err
    run([*arguments, "--debug"])
    assert f"gaudi_launch.core.base.interrupt: run ['{sys.executable}'" in capfd.readouterr().err
    assert log.read_text().count(f"gaudi_launch.core.base.interrupt: run ['{sys.executable}'") == 2


def test_a_run_leaves_no_handler() -> None:
    logger = logging.getLogger("gaudi_launch")
    before = list(logger.handlers), logger.level
    run(["profiles", "--debug"])
    assert (logger.handlers, logger.level) == before


def test_a_program_that_uses_the_package_prints_nothing(log: Path) -> None:
    program = "from gaudi_launch.core.base import interrupt; interrupt.run(['true'])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert not log.exists()


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Collect the messages of this module's logger."""
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    collector, former = Collector(), _log.level
    _log.addHandler(collector)
    _log.setLevel(logging.DEBUG)
    yield found
    _log.setLevel(former)
    _log.removeHandler(collector)


def test_a_child_that_continues_or_never_began_has_no_end(
    logged: list[str],
) -> None:
    detached = ChildLog(_log, [Path("/bin/engine")])
    detached.continues()
    detached.ended(0)
    missing = ChildLog(_log, ["engine"])
    missing.failed(OSError("no text of the system"))
    missing.ended(1)
    assert logged == [
        "run ['/bin/engine']",
        "engine: continues in the background",
        "run ['engine']",
        "engine: not started: OSError",
    ]


def test_the_folder_and_the_file_that_a_child_makes_are_its_users(log: Path) -> None:
    former = os.umask(0)
    try:
        with debug_log.kept(debug=False):
            ChildLog(_log, ["engine"])
    finally:
        os.umask(former)
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert debug_log.log_path() == log


def test_a_log_is_full_at_its_size_and_not_before(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.parent.mkdir(parents=True)
    monkeypatch.setattr(debug_log, "MOST_BYTES", 10)
    for line in (b"12345", b"67890"):
        debug_log._append(log, line)
    assert (log.read_bytes(), [*log.parent.iterdir()]) == (b"1234567890", [log])
    debug_log._append(log, b"much too long")
    earlier = log.with_name("gaudi-launch.log.1")
    assert (earlier.read_bytes(), log.read_bytes()) == (b"1234567890", b"much too l")


def test_a_log_that_another_process_renames_gets_the_line(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.parent.mkdir(parents=True)
    monkeypatch.setattr(debug_log, "MOST_BYTES", 4)
    debug_log._append(log, b"full")
    with log.open("rb") as other:
        assert locks.try_take(other.fileno())
        debug_log._append(log, b"more")
    assert (log.read_bytes(), [*log.parent.iterdir()]) == (b"fullmore", [log])
