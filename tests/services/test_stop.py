"""The end of a service: what is waited for, removed and recorded."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message
from gaudi_launch.services import stop as module
from gaudi_launch.services.metrics import EngineLoad
from gaudi_launch.services.state import store
from gaudi_launch.services.stop import Stopped, stop


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
