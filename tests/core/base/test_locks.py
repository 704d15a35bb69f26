"""Locks of files: who gets one, who waits, and what ends one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gaudi_launch.core.base import locks

_HOLDER = """
import os, sys, time
from gaudi_launch.core.base import locks
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
kind, seconds = sys.argv[2], float(sys.argv[3])
assert locks.try_ofd(handle) if kind == "ofd" else locks.try_take(handle, shared=kind == "shared")
print("held", flush=True)
time.sleep(seconds)
"""


@contextmanager
def held(path: Path, kind: str, seconds: float = 60.0) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", _HOLDER, str(path), kind, str(seconds)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def handle(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    yield opened
    os.close(opened)


@pytest.mark.parametrize(
    ("theirs", "shared", "gets_it"),
    [
        ("exclusive", False, False),
        ("exclusive", True, False),
        ("shared", False, False),
        ("shared", True, True),
    ],
)
def test_a_shared_lock_is_shared_with_shared_ones_only(
    tmp_path: Path, handle: int, theirs: str, shared: bool, gets_it: bool
) -> None:
    with held(tmp_path / "lock", theirs):
        assert locks.try_take(handle, shared=shared) is gets_it


def test_a_lock_ends_with_its_holder_however_that_dies(tmp_path: Path, handle: int) -> None:
    with held(tmp_path / "lock", "exclusive") as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert locks.try_take(handle)


def test_it_is_waited_for_as_long_as_requested(tmp_path: Path, handle: int) -> None:
    with held(tmp_path / "lock", "exclusive"):
        begin = time.monotonic()
        assert not locks.try_take(handle, wait_seconds=0.5)
        assert time.monotonic() - begin >= 0.5


@pytest.mark.parametrize("limited", [True, False])
def test_one_that_is_released_meanwhile_is_taken(
    tmp_path: Path, handle: int, limited: bool
) -> None:
    with held(tmp_path / "lock", "exclusive", 1.0):
        if limited:
            assert locks.try_take(handle, wait_seconds=60)
        else:
            locks.wait(handle)
    other = os.open(tmp_path / "lock", os.O_RDWR)
    assert not locks.try_take(other)
    os.close(other)


def test_the_state_of_an_ofd_lock_is_read_without_taking_it(tmp_path: Path, handle: int) -> None:
    assert not locks.is_ofd_locked(handle)
    with held(tmp_path / "lock", "ofd"):
        assert locks.is_ofd_locked(handle)
        assert not locks.try_ofd(handle)
    assert locks.try_ofd(handle)


def test_a_file_system_without_locks_raises(tmp_path: Path) -> None:
    closed = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    os.close(closed)
    for take in (locks.try_take, locks.try_ofd, locks.is_ofd_locked):
        with pytest.raises(OSError):
            take(closed)


def test_the_holder_written_last_is_read(handle: int) -> None:
    locks.write_holder(handle, "a long name of the first one")
    locks.write_holder(handle, "second")
    assert locks.read_holder(handle) == "second"


def test_the_entry_of_a_holder_is_read_up_to_a_limit_and_in_any_bytes(handle: int) -> None:
    locks.write_holder(handle, "名字 of the holder")
    assert locks.read_holder(handle) == "名字 of the holder"
    assert locks.read_holder(handle, 4) == "名\ufffd"
    locks.write_holder(handle, "x" * 5000)
    assert locks.read_holder(handle) == "x" * 4096


def test_a_lock_is_that_of_the_open_file(tmp_path: Path, handle: int) -> None:
    other = os.open(tmp_path / "lock", os.O_RDWR)
    for take in (locks.try_take, locks.try_ofd):
        assert [take(handle), take(handle), take(other)] == [True, True, False]
    assert [locks.is_ofd_locked(handle), locks.is_ofd_locked(other)] == [False, True]
    os.close(other)


def test_an_ofd_lock_is_that_of_all_bytes(tmp_path: Path, handle: int) -> None:
    """Wherever the file's position is, and however long the file gets."""
    other = os.open(tmp_path / "lock", os.O_RDWR)
    os.write(handle, b"x" * 100)
    assert locks.try_ofd(handle)
    for place in (0, 50, 5000):
        os.lseek(other, place, os.SEEK_SET)
        assert [locks.try_ofd(other), locks.is_ofd_locked(other)] == [False, True]
    os.close(other)
