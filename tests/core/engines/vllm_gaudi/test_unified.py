"""Unified attention: a plan that says what it does not know, in the releases that have it."""

from __future__ import annotations

import pytest

from gaudi_launch.core.engines.known_versions import releases
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.engines.version_facts import reads_variable
from gaudi_launch.core.host import simulated
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.speed import setup_in

MODEL = known_model("Qwen/Qwen3-8B", False)
HOST = simulated.make("hls2")
NAME = "VLLM_UNIFIED_ATTN"
OFFERED = [each for each in releases("vllm-gaudi") if each.executed]
WITH = [each.label for each in OFFERED if reads_variable(each, NAME)]
WITHOUT = [each.label for each in OFFERED if each.label not in WITH]


def plan(engine: str, value: str | None) -> Plan:
    environment = {} if value is None else {NAME: value}
    request = Request(MODEL.path, cards=1, engine=engine, environment=environment)
    return make_plan(request, HOST, MODEL, find(engine))


@pytest.mark.parametrize("engine", WITH)
def test_no_number_is_shown_that_it_changes(engine: str) -> None:
    made, usual = plan(engine, "1"), plan(engine, None)
    assert (made.buckets, made.estimate, made.num_blocks) == (None, None, None)
    assert not made.memory and usual.memory
    unknown = [each for each in made.warnings if each.id == "plan.not_modelled"]
    assert [each.values for each in unknown] == [{"options": NAME}]
    # the engine ends without contiguous attention, and knows no bucket file with it
    assert made.command.env["VLLM_CONTIGUOUS_PA"] == "true"
    assert "VLLM_BUCKETING_FROM_FILE" not in made.command.env
    assert not {"--async-scheduling", "--no-enable-prefix-caching"} & set(made.command.argv)
    request = Request(MODEL.path, cards=1, environment={NAME: "1"})
    found = find(engine)
    limits = found.limits(request, HOST, MODEL)
    context = Context(request, HOST, MODEL, made.placement, limits)
    assert setup_in(context, found, made.settings, 700) is None


@pytest.mark.parametrize("engine", WITH)
def test_it_is_the_usual_plan_where_it_is_off(engine: str) -> None:
    usual, off = plan(engine, None), plan(engine, "false")
    assert (off.buckets, off.memory) == (usual.buckets, usual.memory)


@pytest.mark.parametrize("engine", WITHOUT)
def test_a_release_without_it_does_not_read_it(engine: str) -> None:
    usual, made = plan(engine, None), plan(engine, "1")
    assert (made.buckets, made.memory) == (usual.buckets, usual.memory)
    assert NAME in str([each.render() for each in made.warnings])
