"""``ps`` on terminals of several sizes: running services, and the failed ones that need
attention."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.services.state import store
from tests.support.cli import golden
from tests.support.screens import screen
from tests.support.service_record import service


@pytest.fixture
def ended(plain_english: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Three services whose launchers ended: one failed, one was lost, one was stopped."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, phase in (("broken", "failed"), ("gone", "ready"), ("quiet", "stopped")):
        store.make_dir(name)
        state = {
            "name": name,
            "phase": phase,
            "model": "/models/Qwen3-8B",
            "engine": "vllm-fork@1.21",
        }
        ending = (
            {"outcome": "died", "error": "The KV cache cannot hold one request."}
            if phase == "failed"
            else {}
        )
        ending = {"outcome": "stopped"} if phase == "stopped" else ending
        where = {"modules": [0, 1], "url": "http://127.0.0.1:30001"}
        store.write(store.service_dir(name), "state.json", {**state, **ending, **where})
    return tmp_path


def test_failed_and_lost_services_are_shown_stopped_ones_are_not(
    ended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ps"]) == 0
    out = capsys.readouterr().out
    assert ("broken" in out, "gone" in out, "quiet" in out) == (True, True, False)
    assert out.splitlines()[-1] == "failed: 2; the cause: gaudi-launch why broken"


def test_the_json_of_ps_has_running_services_only(
    ended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ps", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "services": []}


def test_nothing_is_said_of_failures_where_all_run(
    ended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("broken", "gone"):
        store.write(
            store.service_dir(name), "state.json", {"phase": "stopped", "outcome": "stopped"}
        )
    with service("alive", "http://127.0.0.1:1", phase="load"):
        assert run(["ps"]) == 0
    out = capsys.readouterr().out
    assert "alive" in out
    assert "failed" not in out


@pytest.mark.parametrize(("columns", "language"), [(80, "en"), (80, "zh"), (40, "en"), (40, "zh")])
def test_the_screen(ended: Path, columns: int, language: str) -> None:
    shown = screen(["ps", "--lang", language], columns=columns, home=ended)
    golden(f"screen-ps-{columns}-{language}.txt", shown)
