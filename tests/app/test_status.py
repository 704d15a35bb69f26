"""status: plan, load, cards, the record of simulated cards and the history of a service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app import machine
from gaudi_launch.app.status import ServiceStatus, status
from gaudi_launch.host.simulated import make
from gaudi_launch.services import history, metrics, run_record
from gaudi_launch.services.metrics import EngineLoad
from gaudi_launch.services.ray_status import RayStatus
from gaudi_launch.services.state import registry, store
from gaudi_launch.services.state.registry import ServiceRecord

LOAD = EngineLoad(2, 1)
PLAN = {"url": "http://127.0.0.1:9", "engine": {"name": "x"}}


@pytest.fixture(autouse=True)
def _answers(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "load", lambda name=None: make("hls2"))
    monkeypatch.setattr(metrics, "requests_of", lambda url: LOAD if url.endswith(":9") else None)
    monkeypatch.setattr(run_record, "read_run_record", lambda folder, since: (folder.name, since))


def found(
    monkeypatch: pytest.MonkeyPatch,
    *,
    alive: bool = True,
    modules: tuple[int, ...] = (5, 2),
    **state: Any,
) -> ServiceRecord:
    """Let a service of this state be found, with a stored plan."""
    folder = store.service_dir("chat")
    folder.mkdir(parents=True, exist_ok=True)
    store.write(folder, "plan.json", PLAN)
    known = {"url": "http://127.0.0.1:9", "phase": "ready", "engine_began": 4.0, **state}
    record = ServiceRecord("chat", folder, {**known, "modules": list(modules)}, alive)
    monkeypatch.setattr(registry, "find", lambda name: {"chat": record}[name])
    return record


def test_a_service_that_answers_has_its_load_and_its_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    service = found(monkeypatch)
    shown = status("chat")
    cards = {card.module: card for card in make("hls2").cards}
    run: Any = ("chat", 4.0)
    assert shown == ServiceStatus(service, {"schema": 1, **PLAN}, LOAD, (cards[2], cards[5]), run)


@pytest.mark.parametrize(("alive", "phase"), [(True, "load"), (False, "ready")])
def test_one_that_does_not_answer_is_not_asked(
    alive: bool, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, alive=alive, phase=phase)
    shown = status("chat")
    assert (shown.load, len(shown.cards)) == (None, 2 if alive else 0)


def test_the_state_in_ray_is_read_while_the_service_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"ray_dashboard": "http://127.0.0.1:1", "ray_token": "/none"}
    silent = RayStatus("http://127.0.0.1:1", trouble="/none: No such file or directory")
    found(monkeypatch, facts=facts)
    assert status("chat").ray == silent
    found(monkeypatch, alive=False, facts=facts)
    assert status("chat").ray is None


def test_one_without_cards_and_without_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    service = found(monkeypatch, modules=())
    (service.folder / "plan.json").unlink()
    assert (status("chat").cards, status("chat").plan) == ((), {})


def test_the_history_reaches_back_as_far_as_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch)
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    monkeypatch.setattr(history, "read_rows", lambda folder, since: [folder.name, since])
    monkeypatch.setattr(history, "points", lambda rows: rows)
    shown: Any = status("chat", 60.0)
    assert (shown.history, shown.history_seconds) == (("chat", 940.0), 60.0)
    assert (status("chat").history, status("chat").history_seconds) == (None, 0.0)
