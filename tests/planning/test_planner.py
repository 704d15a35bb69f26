"""Request, host and model make the plan; nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gaudi_launch.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.engines.registry import find
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host import simulated
from gaudi_launch.host.hardware import Host
from gaudi_launch.messages import Message, message
from gaudi_launch.models.model import Model
from gaudi_launch.planning.engine import Context
from gaudi_launch.planning.plan import Command, Placement, Plan, Setting
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from tests.support.toy_engine import Toy
from tests.support.vllm_gaudi_plans import HLS2, LLAMA

MODEL = Model(
    "/m/Qwen3-30B-A3B", "Qwen3-30B-A3B", "config.json", moe=True, experts=128, heads=32, kv_heads=4
)


def plan(engine: str, request: Request, placement: Placement | None = None) -> Plan:
    return make_plan(request, simulated.make("hls2"), MODEL, find(engine), placement)


@dataclass(frozen=True)
class Told(Toy):
    """The toy engine with the answers of a test."""

    made: Command | None = None
    end: str | None = None
    compared: list[tuple[Any, ...]] = field(default_factory=list)
    broken: str = ""

    @property
    def ended(self) -> str | None:
        return self.end

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        if self.made is not None:
            return self.made
        return super().command(settings, context)

    def script_differences(
        self, request: Request, host: Host, placement: Placement, command: Command
    ) -> tuple[Message, ...]:
        self.compared.append((request, host, placement, command))
        return (message("plan.dense"),)

    def buckets(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, Buckets] | None:
        if self.broken:
            raise BucketError(self.broken)
        return super().buckets(settings, context, num_blocks)


def told(engine: Told, **given: Any) -> Plan:
    return make_plan(Request(LLAMA.path, **given), HLS2, LLAMA, engine)


def test_cards_without_a_binding_give_no_reason_for_their_cpus() -> None:
    def reasons(made: Plan) -> list[str]:
        return [reason.id for reason in made.placement.reasons]

    bound, free = told(Told()), told(Told(made=Command(("engine",), {})))
    assert bound.placement.cpus == bound.command.cpus != ()
    assert free.placement.cpus == ()
    assert "placement.cpus" in reasons(bound)
    assert reasons(free) == [each for each in reasons(bound) if each != "placement.cpus"]


def test_buckets_that_the_engine_fails_on_are_refused_and_reported_for_a_script() -> None:
    engine = Told(broken="min > max")
    with pytest.raises(LaunchError) as caught:
        told(engine)
    why = {"why": "min > max"}
    assert (caught.value.exit_code, caught.value.text) == (
        ExitCode.USAGE,
        message("plan.buckets_fail", **why, names="VLLM_*_BUCKET_*"),
    )
    script = told(engine, tuning="reference")
    assert (script.buckets, script.bucket_strategy, script.estimate) == (None, "", None)
    assert script.warnings == (message("plan.buckets_fail_script", **why, names=""),)
    named = "VLLM_PROMPT_BS_BUCKET_MIN"
    exported = told(engine, tuning="reference", environment={named: "9"})
    assert message("plan.buckets_fail", **why, names=named) in exported.warnings
