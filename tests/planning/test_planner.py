"""Request, host and model make the plan; nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaudi_launch.engines.registry import find
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host import simulated
from gaudi_launch.models.model import Model
from gaudi_launch.planning.plan import Overridden, Placement, Plan
from gaudi_launch.planning.planner import make_plan, place
from gaudi_launch.planning.request import Request

ENGINES = ("vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1", "vllm-gaudi")
MODEL = Model(
    "/m/Qwen3-30B-A3B", "Qwen3-30B-A3B", "config.json", moe=True, experts=128, heads=32, kv_heads=4
)


def plan(engine: str, request: Request, placement: Placement | None = None) -> Plan:
    return make_plan(request, simulated.make("hls2"), MODEL, find(engine), placement)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_input_gives_the_same_plan(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(model=MODEL.path, cards=8)
    first = plan(engine, request)
    monkeypatch.chdir(tmp_path)
    for name in ("HABANA_VISIBLE_MODULES", "PT_HPU_LAZY_MODE", "VLLM_PROMPT_BS_BUCKET_MAX"):
        monkeypatch.setenv(name, "7")
    monkeypatch.delenv("PATH")
    assert plan(engine, request).to_json() == first.to_json()


def test_planning_leaves_the_environment_alone() -> None:
    before = dict(os.environ)
    plan("vllm-fork@1.22", Request(model=MODEL.path, cards=2))
    assert dict(os.environ) == before


@pytest.mark.parametrize("engine", ENGINES)
def test_options_after_the_dashes_win_and_stand_last(engine: str) -> None:
    own = ("--max-num-seqs", "17")
    made = plan(engine, Request(model=MODEL.path, cards=8, max_num_seqs=32, extra=own))
    assert made.command.argv[-2:] == own
    (setting,) = [each for each in made.settings if each.name.replace("_", "-") == "--max-num-seqs"]
    assert (setting.value, setting.source) == ("17", "flag")
    assert Overridden("32", "flag") in setting.beaten


def test_cards_that_are_held_already_are_not_chosen_again() -> None:
    request = Request(model=MODEL.path, cards=2)
    host, engine = simulated.make("hls2"), find("vllm-fork@1.22")
    held = place(Request(model=MODEL.path, modules=(6, 7)), host, engine)
    assert make_plan(request, host, MODEL, engine, held).placement.modules == (6, 7)
    assert make_plan(request, host, MODEL, engine).placement.modules != (6, 7)


def test_more_cards_than_the_server_has_are_refused() -> None:
    with pytest.raises(LaunchError) as caught:
        plan("vllm-fork@1.22", Request(model=MODEL.path, cards=9))
    assert caught.value.exit_code == ExitCode.MACHINE


def test_replicas_are_refused_where_no_engine_serves_several() -> None:
    with pytest.raises(LaunchError) as caught:
        plan("vllm-fork@1.22", Request(model=MODEL.path, replicas=(2, 2)))
    assert (caught.value.id, caught.value.exit_code) == ("ray.only", ExitCode.USAGE)
