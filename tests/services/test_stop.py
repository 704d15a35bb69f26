"""The end of a service: what is waited for, removed and recorded."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host import machine
from gaudi_launch.messages import message
from gaudi_launch.services import stop as module
from gaudi_launch.services.metrics import EngineLoad
from gaudi_launch.services.state import store
from gaudi_launch.services.state.identity import Identity
from gaudi_launch.services.state.orphans import Orphan
from gaudi_launch.services.stop import Stopped, still_busy, stop, tidy
from tests.support.refusals import refused


@pytest.fixture
def pauses(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses, which take no time."""
    taken: list[float] = []
    clock = {"now": 0.0}

    def sleep(seconds: float) -> None:
        taken.append(seconds)
        clock["now"] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(time, "time", lambda: 100.0)
    return taken


class Launcher:
    """A launcher that ends after some signals, or never."""

    def __init__(self, ends_at: int | None) -> None:
        self.pid, self.ends_at = 7, ends_at
        self.signals: list[int] = []

    def send(self, number: int) -> bool:
        self.signals.append(number)
        return True


def nothing(word: str, value: float) -> None:
    pytest.fail(f"waited for {word}")


def service(
    folder: Path, *, alive: bool, phase: str = "ready", launcher: Any = None, url: str = ""
) -> Any:
    return SimpleNamespace(
        name="chat", folder=folder, alive=alive, phase=phase, launcher=launcher, url=url
    )


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Let no orphans exist; keep what is removed."""
    found: dict[str, Any] = {"removed": [], "orphans": (), "dead": [], "clears": True}
    monkeypatch.setattr(module, "orphans", lambda folder: found["orphans"])
    monkeypatch.setattr(module, "end", lambda left: left[:1])

    def remover(name: str, argv: list[str]) -> Any:
        return lambda status: found["removed"].append((name, argv, status))

    def remove_dead(began: float, environment: Any) -> bool:
        found["dead"].append((began, dict(environment)))
        return bool(found["clears"])

    monkeypatch.setattr(module, "remover", remover)
    monkeypatch.setattr(module, "remove_dead", remove_dead)
    return found


def test_a_service_that_ended_is_only_tidied(
    pauses: list[float], ended: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store.make_dir("chat")
    gone = service(folder, alive=False, phase="stopped")
    monkeypatch.setattr(module, "find", lambda name: gone)
    store.write(folder, "state.json", {"name": "chat", "engine_began": 5.0})
    store.write(folder, "job.json", {"environment": {"A": "1"}, "container": "box", "command": {}})
    assert stop(gone, 30.0, nothing) == Stopped(gone, False, 0, (), ())
    assert (ended["dead"], ended["removed"], pauses) == ([(5.0, {"A": "1"})], [], [0.0])


def test_what_a_lost_launcher_left_is_ended_and_removed(
    pauses: list[float], ended: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store.make_dir("chat")
    lost = service(folder, alive=False, phase="lost")
    monkeypatch.setattr(module, "find", lambda name: lost)
    store.write(folder, "state.json", {"name": "chat", "engine_began": 5.0})
    command = {"argv": ["docker", "run"]}
    store.write(folder, "job.json", {"container": "box", "command": command})
    one, two = (Orphan(Identity(pid, 1, ""), "x", str(folder)) for pid in (1, 2))
    ended["orphans"], ended["clears"] = (one, two), False
    assert stop(lost, 0.0, nothing) == Stopped(lost, False, 0, (one, two), (one,))
    assert ended["removed"] == [("box", ["docker", "run"], None)]
    assert pauses == [0.0, 0.5, 1.0, 2.0]
    for job in ({"container": "", "command": command}, {"container": "box"}):
        store.write(folder, "job.json", job)
        stop(lost, 0.0, nothing)
    assert len(ended["removed"]) == 1
    # the record of an older version
    store.write(folder, "job.json", {"container": "box", "command": {}})
    stop(lost, 0.0, nothing)
    assert ended["removed"][1:] == [("box", [], None)]


def test_a_launcher_that_had_to_be_killed_is_recorded_as_stopped(
    pauses: list[float], ended: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store.make_dir("chat")
    launcher = Launcher(1)
    running = service(folder, alive=True, launcher=launcher)
    lost = service(folder, alive=False, phase="lost", launcher=launcher)
    lost.state = {"name": "chat", "phase": "load", "began": 5.0}
    monkeypatch.setattr(module, "find", lambda name: lost)
    monkeypatch.setattr(module, "runs", lambda folder, who: not launcher.signals)
    written: list[tuple[str, bool]] = []
    real = store.write

    def write(folder: Path, name: str, document: Any, *, last: bool = False) -> bool:
        written.append((name, last))
        return real(folder, name, document, last=last)

    monkeypatch.setattr(store, "write", write)
    stop(running, 0.0, lambda word, value: None)
    # its end is written on a full disk, too
    assert written == [("state.json", True)]
    assert store.read(folder, "state.json") == {
        "schema": 1,
        "name": "chat",
        "phase": "stopped",
        "outcome": "stopped",
        "began": 5.0,
        "ended": 100.0,
    }
    # one that was lost before keeps its record
    store.write(folder, "state.json", {"name": "chat", "phase": "load"})
    stop(lost, 0.0, nothing)
    assert store.read(folder, "state.json") == {"schema": 1, "name": "chat", "phase": "load"}


def test_without_an_engine_nothing_is_tidied(pauses: list[float], ended: dict[str, Any]) -> None:
    folder = store.make_dir("chat")
    tidy(folder)
    assert (ended["dead"], pauses) == ([], [])


def run_stop(
    monkeypatch: pytest.MonkeyPatch,
    launcher: Launcher,
    drain: float,
    loads: list[EngineLoad | None],
    url: str = "",
) -> tuple[Stopped, list[tuple[str, float]]]:
    running = service(store.make_dir("chat"), alive=True, launcher=launcher, url=url)
    after = service(running.folder, alive=False, phase="stopped", launcher=launcher)
    monkeypatch.setattr(module, "find", lambda name: after)

    def runs(folder: Path, identity: Any) -> bool:
        return launcher.ends_at is None or len(launcher.signals) < launcher.ends_at

    monkeypatch.setattr(module, "runs", runs)
    monkeypatch.setattr(module, "requests_of", lambda url: loads.pop(0))
    said: list[tuple[str, float]] = []
    return stop(running, drain, lambda word, value: said.append((word, value))), said


def test_requests_are_waited_for_before_the_launcher_is_ended(
    pauses: list[float], ended: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = Launcher(1)
    found, said = run_stop(monkeypatch, launcher, 30.0, [EngineLoad(2, 1), EngineLoad(0, 0)])
    assert (found.was_alive, found.left, found.orphans) == (True, 0, ())
    assert said == [("drain", 3), ("end", 0.0)]
    assert launcher.signals == [15]
    left, _ = run_stop(monkeypatch, Launcher(1), 0.5, [EngineLoad(2, 1), EngineLoad(1, 1)])
    assert left.left == 2
    # no wait at all
    assert run_stop(monkeypatch, Launcher(1), 0.0, [])[0].left == 0


def test_without_metrics_open_connections_are_waited_for(
    pauses: list[float], ended: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # nothing listens there: no connection is open
    assert run_stop(monkeypatch, Launcher(1), 30.0, [None])[0].left == 0
    with socket.create_server(("127.0.0.1", 0)) as engine:
        client = socket.create_connection(engine.getsockname())
        url = f"http://127.0.0.1:{engine.getsockname()[1]}"
        answered, _ = engine.accept()
        with client, answered:
            left, said = run_stop(monkeypatch, Launcher(1), 0.5, [None, None], url)
        assert (left.left, said) == (1, [("connections", 1), ("end", 0.0)])


def test_a_launcher_that_is_deaf_is_killed_and_one_that_stays_is_named(
    pauses: list[float], ended: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = Launcher(2)
    run_stop(monkeypatch, launcher, 0.0, [])
    assert launcher.signals == [15, 9]
    assert 45.0 < sum(pauses) < 46.5
    with refused("services.not_ending", ExitCode.FAILED, name="chat", pid=7):
        run_stop(monkeypatch, Launcher(None), 0.0, [])


def test_a_launcher_of_another_user_is_named(
    pauses: list[float], ended: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(self: Launcher, number: int) -> bool:
        raise PermissionError

    monkeypatch.setattr(Launcher, "send", forbidden)
    with pytest.raises(LaunchError) as caught:
        run_stop(monkeypatch, Launcher(1), 0.0, [])
    assert (caught.value.exit_code, caught.value.text) == (
        ExitCode.FAILED,
        message("services.not_ours", name="chat", pid=7),
    )


def test_a_launcher_that_never_signs_is_named(
    pauses: list[float], ended: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = service(store.make_dir("chat"), alive=True)
    monkeypatch.setattr(module, "find", lambda name: running)
    with pytest.raises(LaunchError) as caught:
        stop(running, 0.0, nothing)
    assert (caught.value.exit_code, caught.value.text) == (
        ExitCode.FAILED,
        message("services.no_launcher", name="chat", path=str(running.folder)),
    )
    assert 5.0 < sum(pauses) < 5.3


def test_cards_are_waited_for_until_they_are_released(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (still_busy(()), pauses) == ([], [])
    busy = [{1, 2}, {2}, set()]

    def load(where: object) -> Any:
        now = busy.pop(0) if len(busy) > 1 else busy[0]
        return SimpleNamespace(
            card=lambda module: None if module == 9 else SimpleNamespace(busy=module in now)
        )

    monkeypatch.setattr(machine, "load", load)
    assert (still_busy((1, 2, 9)), pauses) == ([], [0.0, 0.5, 1.0])
    busy[:] = [{2}]
    assert still_busy((1, 2)) == [2]
    assert pauses[3:] == [0.0, 0.5, 1.0, 2.0]
