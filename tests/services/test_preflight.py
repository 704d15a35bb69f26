"""Checks before an engine starts: the model's files, the address, the hand-over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.planning.plan import Command
from gaudi_launch.planning.request import Request
from gaudi_launch.services import preflight
from gaudi_launch.services.preflight import check_port, hold_port, start_detached
from gaudi_launch.services.process import detach
from gaudi_launch.services.state import registry
from gaudi_launch.services.state.job import ServiceJob

REQUEST = Request(model="/m")
URL = "http://0.0.0.0:4000"


def refused(what: Any, *words: Any) -> tuple[str, ExitCode, dict[str, Any]]:
    with pytest.raises(LaunchError) as caught:
        what(*words)
    return caught.value.id, caught.value.exit_code, dict(caught.value.text.values)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Return what the port's checks answer, and what they were asked."""
    found: dict[str, Any] = {"free": True, "asked": []}
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))

    def port_free(host: str, port: int) -> bool:
        found["asked"].append((host, port))
        if isinstance(found["free"], OSError):
            raise found["free"]
        return bool(found["free"])

    monkeypatch.setattr(preflight, "port_free", port_free)
    monkeypatch.setattr(preflight, "holder", lambda port: "python3 (pid 7)")
    monkeypatch.setattr(preflight, "free_port", lambda host, after, root: after + 1)
    return found


def test_a_port_that_is_taken_is_named_with_its_owner_and_a_free_one(port: dict[str, Any]) -> None:
    check_port(URL)
    port["free"] = False
    values = {"port": 4000, "who": "python3 (pid 7)", "free": 4001}
    assert refused(check_port, URL) == ("serve.port_taken", ExitCode.MACHINE, values)
    with pytest.raises(LaunchError) as caught, hold_port(URL, "chat"):
        pass
    assert caught.value.id == "serve.port_taken"


def test_an_address_that_this_machine_lacks_is_named(port: dict[str, Any]) -> None:
    port["free"] = OSError(99, "Cannot assign requested address")
    assert refused(check_port, "http://10.9.9.9:4000") == (
        "serve.bad_host",
        ExitCode.MACHINE,
        {"host": "10.9.9.9", "port": 4000, "why": "Cannot assign requested address"},
    )


def test_an_address_is_reserved_for_its_service(port: dict[str, Any]) -> None:
    with hold_port(URL, "chat") as handles:
        assert handles
        id, code, values = refused(check_port, URL)
        assert (id, code, values["service"], values["port"]) == (
            "services.port_reserved",
            ExitCode.MACHINE,
            "chat",
            4000,
        )
    check_port(URL)


def test_name_cards_and_port_are_passed_to_the_launcher(
    monkeypatch: pytest.MonkeyPatch, port: dict[str, Any]
) -> None:
    seen: list[tuple[Any, ...]] = []

    @contextlib.contextmanager
    def hold(name: str) -> Iterator[int]:
        seen.append(("name", name))
        yield 3

    @contextlib.contextmanager
    def reserve(modules: tuple[int, ...], root: Path) -> Iterator[tuple[int, ...]]:
        seen.append(("cards", modules))
        yield (4, 5)

    @contextlib.contextmanager
    def held(url: str, name: str) -> Iterator[tuple[int, ...]]:
        seen.append(("port", url, name))
        yield (6,)

    monkeypatch.setattr(registry, "hold", hold)
    monkeypatch.setattr(preflight, "reserve", reserve)
    monkeypatch.setattr(preflight, "hold_port", held)
    monkeypatch.setattr(detach, "spawn", lambda *words: seen.append(words))
    monkeypatch.setattr(
        preflight, "check_program", lambda name, needs_cards: seen.append((name, needs_cards))
    )
    job = ServiceJob("chat", "m", "/m", "e@1", URL, Command(("podman", "run"), {}), modules=(1, 2))
    start_detached(job, {"A": "1"})
    parts = [("name", "chat"), ("cards", (1, 2)), ("port", URL, "chat")]
    assert seen == [*parts, (job, None, {"A": "1"}, (3, 4, 5, 6))]
    seen.clear()
    start_detached(replace(job, container="box"), {})
    assert seen[0] == ("podman", True)
    seen.clear()
    start_detached(replace(job, container="box", modules=()), {})
    assert seen[0] == ("podman", False)
