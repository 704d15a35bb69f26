"""Whose answers an address gives: the name in the arguments, the socket's owner, the reservation
of the port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from gaudi_launch.core.services.addresses import free_port as next_free
from gaudi_launch.core.services.listener import other_service_at, stranger_at
from gaudi_launch.core.services.process.marks import MARK
from gaudi_launch.core.services.state import registry, store
from tests.support.processes import free_port
from tests.support.waiting import until

__all__ = ["free_port"]


LISTEN = """
import socket, sys, time
listening = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listens", flush=True)
time.sleep(600)
"""


@contextmanager
def listening(port: int, folder: Path | None, host: str = "127.0.0.1") -> Iterator[None]:
    """A process of a service (or of none) that listens."""
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    if folder is not None:
        environment[MARK] = str(folder)
    words = [sys.executable, "-c", LISTEN, host, str(port)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"listens\n"
            yield
        finally:
            process.kill()


@pytest.fixture
def two(own_folders: Path) -> tuple[Path, Path]:
    """The folders of two services."""
    for name in ("a", "b"):
        with registry.hold(name):
            store.write(store.service_dir(name), "state.json", {"name": name})
    return store.service_dir("a"), store.service_dir("b")


def test_the_service_that_listens(two: tuple[Path, Path], free_port: int) -> None:
    mine, other = two
    assert other_service_at("127.0.0.1", free_port, mine) is None
    with listening(free_port, other):
        assert other_service_at("127.0.0.1", free_port, mine) == "b"
        assert other_service_at("127.0.0.1", free_port, other) is None
        # at another address it is in nobody's way
        assert other_service_at("127.0.0.2", free_port, mine) is None
    with listening(free_port, None):
        # a process of no service is not known to be another's: a container's socket looks so, too
        assert other_service_at("127.0.0.1", free_port, mine) is None
    with listening(free_port, other, "0.0.0.0"):
        assert other_service_at("127.0.0.1", free_port, mine) == "b"
        with listening(free_port + 1, mine):
            assert other_service_at("127.0.0.1", free_port, mine) == "b"


def test_a_stranger_has_the_address_only_while_the_service_does_not(
    two: tuple[Path, Path], free_port: int
) -> None:
    mine, _ = two
    assert stranger_at("127.0.0.1", free_port, mine) == ""
    with listening(free_port, mine):
        assert stranger_at("127.0.0.1", free_port, mine) == ""
    # a child of the launcher is the engine's, also without the mark
    with listening(free_port, None):
        assert stranger_at("127.0.0.1", free_port, mine) == ""
    with orphan(free_port, "127.0.0.1") as pid:
        assert stranger_at("127.0.0.1", free_port, mine).endswith(f" [{pid}]")
        assert stranger_at("127.0.0.2", free_port, mine) == ""
    with orphan(free_port, "0.0.0.0") as pid:
        assert stranger_at("127.0.0.1", free_port, mine).endswith(f" [{pid}]")


@contextmanager
def orphan(port: int, host: str) -> Iterator[int]:
    """A process that listens and is no child of this one."""
    start = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    words = [sys.executable, "-c", start, "-c", LISTEN, host, str(port)]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    pid = int(done.stdout)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        until(lambda: not psutil.pid_exists(pid), "the end of the process")


def test_above_the_last_port_the_system_picks(tmp_path: Path) -> None:
    assert 1024 <= next_free("127.0.0.1", 65535, tmp_path) <= 65535
