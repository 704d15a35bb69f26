"""An engine's process: its environment, files and log, and the order of its end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.services.process.process import EngineProcess, StopTimeouts, write_files

SHORT = StopTimeouts(3.0, 2.0)
SHOW = "import os, sys; print(os.getcwd(), dict(os.environ), os.getsid(0) == os.getpid())"


def test_an_engine_gets_its_variables_folder_files_and_a_session_of_its_own(
    tmp_path: Path,
) -> None:
    log, file = tmp_path / "log", tmp_path / "a" / "buckets.txt"
    log.write_text("before\n")
    command = Command(
        (sys.executable, "-S", "-c", SHOW),
        {"A": "ours", "C": "set"},
        unset=("B", "MISSING"),
        working_dir=str(tmp_path),
        files={str(file): "1,2\n"},
    )
    inherited = {"A": "theirs", "B": "gone", "D": "kept", "LC_ALL": "C.UTF-8"}
    engine = EngineProcess(command, log, inherited, bind=False)
    pid = engine.start()
    assert engine.pid == pid
    assert engine.end(StopTimeouts(30.0, 30.0), Waits(engine)) == 0
    first, shown = log.read_text().splitlines()
    expected = {"A": "ours", "D": "kept", "LC_ALL": "C.UTF-8", "C": "set"}
    assert (first, shown) == ("before", f"{tmp_path} {expected} True")
    assert file.read_text() == "1,2\n"


class Waits:
    """Lets a process end by itself before it is told to."""

    def __init__(self, engine: EngineProcess) -> None:
        while engine.poll() is None:
            time.sleep(0.01)

    def __call__(self) -> bool:
        return False


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    engine = EngineProcess(Command((str(tmp_path / "none"),), {}), tmp_path / "log", {}, bind=False)
    with pytest.raises(FileNotFoundError):
        engine.start()


def test_a_file_that_cannot_be_written_is_named_and_leaves_no_part(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=f"{tmp_path}/folder: Is a directory"):
        write_files({str(tmp_path / "a"): "é", str(tmp_path / "folder"): "text"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "folder"]
    assert (tmp_path / "a").read_bytes() == "é".encode()


NUMACTL = """#!/bin/sh
shift 2
exec "$@"
"""
CPUS = "import os; print(sorted(os.sched_getaffinity(0)))"


@pytest.mark.parametrize("numactl", [False, True])
@pytest.mark.parametrize("bind", [False, True])
def test_without_numactl_the_child_binds_itself(
    no_programs: None, tmp_path: Path, numactl: bool, bind: bool
) -> None:
    """The stand-in binds nothing."""
    if numactl:
        (tmp_path / "numactl").write_text(NUMACTL)
        (tmp_path / "numactl").chmod(0o755)
    mine = sorted(os.sched_getaffinity(0))
    command = Command((sys.executable, "-c", CPUS), {}, cpus=(mine[0], 9999))
    engine = EngineProcess(command, tmp_path / "log", {"PATH": str(tmp_path)}, bind=bind)
    engine.start()
    assert engine.end(SHORT, Waits(engine)) == 0
    bound = mine[:1] if bind and not numactl else mine
    assert (tmp_path / "log").read_text() == f"{bound}\n"


def test_what_the_first_process_left_is_told_before_it_is_killed(tmp_path: Path) -> None:
    wait = "while true; do sleep 0.05; done"
    gentle = f"(trap 'touch {tmp_path}/told; exit' TERM; touch {tmp_path}/1; {wait}) &"
    deaf = f"(trap '' TERM; touch {tmp_path}/2; {wait}) &"
    command = Command(("sh", "-c", f"trap 'exit 0' TERM; {gentle} {deaf} {wait}"), {})
    engine = EngineProcess(command, tmp_path / "log", dict(os.environ), bind=False)
    engine.start()
    while not all((tmp_path / name).exists() for name in "12"):
        time.sleep(0.01)
    assert engine.end(StopTimeouts(30.0, 1.0)) == 0
    assert (engine.look(), (tmp_path / "told").exists()) == ([], True)


def test_every_living_descendant_is_found(tmp_path: Path) -> None:
    engine = EngineProcess(Command(("/bin/sleep", "60"), {}), tmp_path / "log", {}, bind=False)
    pid = engine.start()
    try:
        assert pid in engine.look()
        assert engine.poll() is None
    finally:
        assert engine.end(SHORT) == -15
    assert pid not in engine.look()
    assert engine.poll() == -15
    assert StopTimeouts() == StopTimeouts(20.0, 5.0)
