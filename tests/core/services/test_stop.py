"""The end of a service whose launcher is a real process, and launchers that cannot be ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.services import stop as module
from gaudi_launch.core.services.state import chosen, identity, registry, store
from gaudi_launch.core.services.state.identity import Identity
from gaudi_launch.core.services.stop import Stopped
from tests.support.http_answers import server
from tests.support.processes import is_alive
from tests.support.refusals import refused


def nothing(word: str, value: float) -> None:
    pytest.fail(f"waited for {word}")


@contextmanager
def launched(*, deaf: bool = False, **state: Any) -> Iterator[Path]:
    """Let a process have the lock of a service; yield the service's folder."""
    with registry.hold("chat") as lock:
        folder = store.service_dir("chat")
        process = subprocess.Popen(
            ["sleep", "600"],
            pass_fds=(lock,),
            preexec_fn=(lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)) if deaf else None,
        )
        launcher = identity.of(process.pid)
        assert launcher is not None
        document = {"name": "chat", "phase": "ready", "launcher": launcher, **state}
        store.write(folder, "state.json", document)
    try:
        yield folder
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("running", "drain", "left", "said"),
    [
        (b"vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n", 1.0, 3, ("drain", 3)),
        (b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n", 30.0, 0, None),
        # an engine without metrics has connections
        (b"", 1.0, 1, ("connections", 1)),
        (None, 0.0, 0, None),
    ],
)
def test_requests_are_waited_for_before_the_launcher_is_ended(
    own_folders: object,
    monkeypatch: pytest.MonkeyPatch,
    running: bytes | None,
    drain: float,
    left: int,
    said: tuple[str, int] | None,
) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.02)
    seen: list[tuple[str, float]] = []
    with ExitStack() as stack:
        url, asked = stack.enter_context(server({"/metrics": (200, running or b"")}))
        if running == b"":
            address = ("127.0.0.1", int(url.rpartition(":")[2]))
            stack.enter_context(socket.create_connection(address))
        stack.enter_context(launched(url=url))
        service = chosen.find("chat")
        found = module.stop(service, drain, lambda word, value: seen.append((word, value)))
    assert found == Stopped(service, True, left, ())
    assert {each for each in seen if each[0] != "end"} == ({said} if said else set())
    assert bool(asked) == (running is not None)
    assert not service.launcher or not is_alive(service.launcher.pid)


def test_a_deaf_launcher_is_killed_and_recorded_as_stopped(
    own_folders: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LAUNCHER_SECONDS", 0.1)
    said: list[str] = []
    with launched(deaf=True, began=5.0) as folder:
        module.stop(chosen.find("chat"), 0.0, lambda word, value: said.append(word))
    found = chosen.find("chat")
    assert (found.phase, found.alive, set(said)) == ("stopped", False, {"end"})
    assert (found.state["began"], found.state["outcome"]) == (5.0, "stopped")
    # one that was lost before keeps its record
    store.write(folder, "state.json", {"name": "chat", "phase": "load"})
    lost = chosen.find("chat")
    assert module.stop(lost, 30.0, nothing) == Stopped(lost, False, 0, ())
    assert chosen.find("chat").phase == "lost"


def stop_it() -> None:
    module.stop(chosen.find("chat"), 0.0, nothing)


def test_a_launcher_of_another_user_or_without_a_signature_is_named(
    own_folders: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(self: Identity, number: int) -> bool:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(module, "_SIGN_SECONDS", 0.2)
    monkeypatch.setattr(Identity, "send", forbidden)
    mine = identity.of(os.getpid())
    assert mine is not None
    with registry.hold("chat"):
        folder = store.service_dir("chat")
        state = {"name": "chat", "phase": "ready"}
        store.write(folder, "state.json", state)
        with refused("services.no_launcher", ExitCode.FAILED, name="chat", path=str(folder)):
            stop_it()
        store.write(folder, "state.json", {**state, "launcher": mine})
        with refused("services.not_ours", ExitCode.FAILED, name="chat", pid=mine.pid):
            stop_it()
