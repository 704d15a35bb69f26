"""Launchers that cannot be ended, each with the reason."""

from __future__ import annotations

import os

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.services import stop as module
from gaudi_launch.core.services.state import identity, registry, store
from gaudi_launch.core.services.state.identity import Identity
from tests.support.refusals import refused


def nothing(word: str, value: float) -> None:
    pytest.fail(f"waited for {word}")


def stop_it() -> None:
    module.stop(registry.find("chat"), 0.0, nothing)


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
        store.write(folder, "state.json", {**state, "launcher": mine.to_json()})
        with refused("services.not_ours", ExitCode.FAILED, name="chat", pid=mine.pid):
            stop_it()
