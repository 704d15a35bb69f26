"""Files that an engine's command needs: there before it starts, whole, and kept with its job."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gaudi_launch.planning.plan import Command
from gaudi_launch.services.process.process import EngineProcess
from gaudi_launch.services.state.job import ServiceJob

READ = (
    "import sys; sys.exit(0 if open(sys.argv[1], encoding='utf-8').read() == '(1, 128, 0)\\n' "
    "else 7)"
)


def command(path: Path) -> Command:
    return Command((sys.executable, "-c", READ, str(path)), {}, files={str(path): "(1, 128, 0)\n"})


def started(path: Path, log: Path) -> int:
    engine = EngineProcess(command(path), log, dict(os.environ), bind=False)
    _, status = os.waitpid(engine.start(), 0)
    return os.waitstatus_to_exitcode(status)


def test_the_file_is_there_when_the_engine_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "buckets.txt"
    assert started(path, tmp_path / "log") == 0
    # an older one is replaced, and nothing else lies beside it
    path.write_text("half of")
    assert started(path, tmp_path / "log") == 0
    assert [each.name for each in path.parent.iterdir()] == ["buckets.txt"]


def test_a_file_that_cannot_be_written_starts_nothing_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "buckets.txt"
    with pytest.raises(OSError) as caught:
        started(path, tmp_path / "log")
    assert str(path) in (caught.value.strerror or "")
    assert not (tmp_path / "log").exists()


def test_a_restart_finds_them_in_the_job(tmp_path: Path) -> None:
    job = ServiceJob(
        "name", "m", "/m", "vllm-gaudi@main", "http://127.0.0.1:1", command(tmp_path / "b.txt")
    )
    document = job.to_json()
    assert ServiceJob.from_json(document, tmp_path).command == job.command
