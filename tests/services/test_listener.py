"""Whose answers an address gives: the name in the arguments, the socket's owner, the reservation
of the port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from gaudi_launch import locks
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host import card_locks
from gaudi_launch.services import listener, preflight
from gaudi_launch.services.listener import other_service_at, served_names, stranger_at
from gaudi_launch.services.probe import port_free
from gaudi_launch.services.state import registry, store
from gaudi_launch.services.state.orphans import MARK
from gaudi_launch.services.state.reservation import check_address, reserve_address
from gaudi_launch.services.state.reservation import free_port as next_free
from tests.support.processes import free_port
from tests.support.waiting import until

__all__ = ["free_port"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("py -m vllm.entrypoints.openai.api_server --model /m/Small --port 8000", ("/m/Small",)),
        ("py -m api --model /m/Small --served-model-name a b --port 1", ("a", "b")),
        # the last one wins, in any spelling, also a shortened one
        ("py -m api --model /m --served-model a", ("a",)),
        ("py -m api --served-model-name a --model /m --served_model_name=b", ("b",)),
        ("py -m vllm.entrypoints.cli.main serve /m/Small --port 1", ("/m/Small",)),
        ("/venv/bin/vllm serve me/Small", ("me/Small",)),
        ("docker run --rm --name serve image --model-id /data/Small --port 80", ("/data/Small",)),
        # what may name it elsewhere says nothing here
        ("py -m api --model /m --config more.yaml", ()),
        ("py -m api --model /m --config /state/demo/secret-options.yaml", ("/m",)),
        ("py head.py --hpus 1", ()),
        ("", ()),
    ],
)
def test_the_names_that_the_arguments_give(words: str, names: tuple[str, ...]) -> None:
    assert served_names(words.split()) == names


LISTEN = """
import socket, sys, time
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind((sys.argv[1], int(sys.argv[2])))
listening.listen()
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


def test_an_address_is_reserved_once(tmp_path: Path) -> None:
    with reserve_address("127.0.0.1", 8000, "a", tmp_path) as handles:
        assert len(handles) == 2
        for host in ("127.0.0.1", "localhost", "0.0.0.0"):
            for take in (True, False):
                with pytest.raises(LaunchError) as caught, contextlib.ExitStack() as held:
                    if take:
                        held.enter_context(reserve_address(host, 8000, "b", tmp_path))
                    else:
                        check_address(host, 8000, tmp_path)
                assert (caught.value.id, caught.value.exit_code) == (
                    "services.port_reserved",
                    ExitCode.MACHINE,
                )
                assert caught.value.text.values["service"] == "a"
                assert caught.value.text.values["pid"] == os.getpid()
                free = caught.value.text.values["free"]
                check_address(host, free, tmp_path)
                assert port_free(host, free)
                assert f"-p {free}" in str(caught.value)
        with (
            reserve_address("127.0.0.1", 8001, "b", tmp_path),
            reserve_address("10.0.0.1", 8000, "b", tmp_path),
        ):
            pass
    check_address("127.0.0.1", 8000, tmp_path)
    with reserve_address("127.0.0.1", 8000, "b", tmp_path):
        pass


def test_a_port_lock_is_no_card(tmp_path: Path) -> None:
    with reserve_address("127.0.0.1", 3, "a", tmp_path):
        assert card_locks.read_reserved(tmp_path) == {}


def test_without_a_lock_folder_nothing_is_held(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    (tmp_path / "tmp").write_text("")
    with reserve_address("127.0.0.1", 8000, "a", tmp_path) as handles:
        assert handles == ()


def test_a_port_that_is_taken_frees_its_reservation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    with listening(free_port, None):
        with (
            pytest.raises(LaunchError) as caught,
            preflight.hold_port(f"http://127.0.0.1:{free_port}", "a"),
        ):
            pass
        assert caught.value.id == "serve.port_taken"
        free = caught.value.text.values["free"]
        assert port_free("127.0.0.1", free)
        assert f"-p {free}" in str(caught.value)
    with preflight.hold_port(f"http://127.0.0.1:{free_port}", "a") as handles:
        assert len(handles) == 2


def test_the_offered_port_is_neither_used_nor_reserved(tmp_path: Path, free_port: int) -> None:
    assert next_free("127.0.0.1", free_port - 1, tmp_path) == free_port
    with reserve_address("127.0.0.1", free_port, "a", tmp_path):
        assert next_free("127.0.0.1", free_port - 1, tmp_path) > free_port
    with listening(free_port, None):
        assert next_free("127.0.0.1", free_port - 1, tmp_path) > free_port


def test_above_the_last_port_the_system_picks(tmp_path: Path) -> None:
    assert 1024 <= next_free("127.0.0.1", 65535, tmp_path) <= 65535


def test_an_address_accepts_connections_while_a_process_listens_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening_here:
        port = listening_here.getsockname()[1]
        assert listener._accepts("127.0.0.1", port) is True
    assert listener._accepts("127.0.0.1", port) is False


def test_a_reservation_without_a_readable_owner_has_dashes(tmp_path: Path) -> None:
    with reserve_address("127.0.0.1", 31999, "chat", tmp_path) as handles:
        for handle in handles:
            locks.write_holder(handle, "{")
        with pytest.raises(LaunchError) as caught:
            check_address("127.0.0.1", 31999, tmp_path)
    values = dict(caught.value.text.values)
    assert values.pop("free") not in (31999, None)
    assert (caught.value.id, caught.value.exit_code, values) == (
        "services.port_reserved",
        ExitCode.MACHINE,
        {"port": 31999, "service": "-", "pid": "-", "user": "-"},
    )
