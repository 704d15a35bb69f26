"""The number of cards that is taken where the user names none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.engines.registry import find
from gaudi_launch.host.hardware import Host
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.planning import balanced_cards
from gaudi_launch.planning.memory import MemoryPlan
from gaudi_launch.planning.request import Request

LARGE, SMALL = "Qwen/Qwen2-72B-Instruct", "Qwen/Qwen3-8B"
MACHINE = ("--machine", "simulated:hls2")
ENGINES = ("vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi", "tgi")


@pytest.fixture(autouse=True)
def _own_folders(plain_english: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STATE", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = run(["plan", *words, *MACHINE, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == 0, document
    return document


@pytest.mark.parametrize("engine", ENGINES)
def test_a_large_model_gets_the_cards_on_which_users_do_not_wait(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On fewer, each token of 128 clients takes longer than the goal's 100 ms."""
    assert plan(capsys, LARGE, "--engine", engine)["modules"] == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ({1: (True, True), 2: (True, False)}, 2),
        ({1: (False, False), 2: (True, True), 4: (True, True)}, 2),
        ({1: (False, False), 2: (False, False), 4: (False, False), 8: (False, False)}, None),
        ({2: (True, False)}, 2),
        ({1: (None, False), 2: (True, False)}, None),
    ],
)
def test_a_number_that_is_tight_is_the_second_choice(
    memory: dict[int, tuple[bool | None, bool]],
    expected: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``memory``: for each number that can be planned, whether it fits, and whether it is tight."""

    def plan_of(request: Request, *_: object) -> MemoryPlan | None:
        found = memory.get(request.chosen_cards or 0)
        if found is None:
            return None
        return MemoryPlan(fits=found[0], tight=message("fit.tight") if found[1] else None)

    monkeypatch.setattr(balanced_cards, "_memory", plan_of)
    engine = find("vllm-gaudi", None, None)
    sized = Model(path="m", name="m", layers=2, kv_heads=1, head_dim=8, parameters=9)
    request = balanced_cards.with_balanced_cards(Request(model="m"), Host(), sized, engine)
    assert request.chosen_cards == expected
