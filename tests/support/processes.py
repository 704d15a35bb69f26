"""The trivial engine as an interpreter, its processes, and a free port."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gaudi_launch.core.engines.detect import question
from tests.support.places import SUPPORT, TOP
from tests.support.trivial_engine import ANSWER
from tests.support.waiting import unused_port

TRIVIAL = SUPPORT / "trivial_engine.py"


@pytest.fixture
def free_port() -> int:
    return unused_port()


@pytest.fixture
def trivial_python(tmp_path: Path) -> Path:
    """Return an interpreter with the fork at 1.21 that runs the trivial engine."""
    return write_engine_python(tmp_path / "engine-python", f"{sys.executable} {TRIVIAL}")


@pytest.fixture
def timed_python(tmp_path: Path) -> Path:
    """Return an interpreter with the fork at 1.21 whose speed depends on options."""
    module = f"env PYTHONPATH={TOP} {sys.executable} -m tests.support.timed_engine"
    return write_engine_python(tmp_path / "timed-python", module)


def write_engine_python(path: Path, program: str) -> Path:
    """Write an interpreter that runs ``program``, and return its path.

    It has the fork at 1.21. The shell answers the question for its packages, which every command
    sends, unless ``TRIVIAL_KIND`` changes the answer.
    """
    answer = json.dumps(ANSWER)
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -c ] && [ -z "$TRIVIAL_KIND" ]; then\n'
        f"  echo 'gaudi-launch-answer:{answer}'\n  exit\nfi\n"
        f'exec {program} "$@"\n',
        encoding="utf-8",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def write_quick_python(folder: Path) -> None:
    """Write a ``python3`` which knows the packages of the one on PATH.

    It runs that one for all else. Every plan queries it: most of a plan's processor time would be
    the start of an interpreter.
    """
    real = shutil.which("python3")
    if real is None:
        return
    asked = [real, "-c", question()]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    first = shlex.quote(question().partition("\n")[0])
    path = folder / "python3"
    path.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -c ] && [ -z "$PYTHONPATH$PYTHONHOME" ]; then\n'
        f"  case $2 in {first}*) printf '%s\\n' {shlex.quote(answer)}; exit ;; esac\n"
        f'fi\nexec {shlex.quote(real)} "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """Yield the file to which the trivial engine writes its pids.

    A process that still runs at the end is a failure.
    """
    file = tmp_path / "pids"
    yield file
    left = living(file)
    for pid in left:
        os.kill(pid, 9)
    assert left == []


def living(file: Path) -> list[int]:
    """Return the pids of the file that are alive."""
    if not file.exists():
        return []
    begun = {int(line) for line in file.read_text(encoding="utf-8").split()}
    return [pid for pid in sorted(begun) if is_alive(pid)]


def is_alive(pid: int) -> bool:
    """Return whether the process exists and does not only wait to be reaped."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
