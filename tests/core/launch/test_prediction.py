"""Predictions for plans and for services by their records."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gaudi_launch.commands.estimate import EstimateOptions, predicted
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.launch import route
from gaudi_launch.core.launch.prediction import (
    SETUP,
    SpeedEstimate,
    of_plan,
    of_record,
    record_of,
)
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.load import from_ranges
from tests.support.refusals import failing

LOAD = from_ranges((1024, 1024), (256, 256)).of_clients(32)
LIMITS = dict.fromkeys(EngineLimits.__dataclass_fields__, 0)


@pytest.mark.parametrize("setup", [None, {}, "v1", {"limits": {}}, {"limits": LIMITS}])
def test_a_record_without_a_setup_is_not_predicted(setup: object) -> None:
    assert of_record({SETUP: setup}, LOAD) is None


# --- options -------------------------------------------------------------------------------------


LLAMA, LLAMA_70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"
MIXTRAL, DEEPSEEK = "mistralai/Mixtral-8x7B-Instruct-v0.1", "deepseek-ai/DeepSeek-R1"
HYBRID, STATES = "Qwen/Qwen3.5-35B-A3B", "ibm-granite/granite-4.0-h-small"
ONE_CARD = {"model": LLAMA, "cards": "1", "machine": "gaudi2"}


def found(launch: dict[str, Any] | None = None, **given: Any) -> SpeedEstimate:
    words = {**ONE_CARD, **(launch or {})}
    return predicted(LaunchOptions(**words), EstimateOptions(**given))


DRAFTS = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')


@pytest.mark.parametrize(
    ("launch", "given", "id", "code"),
    [
        ({"output_range": "1"}, {}, "estimate.short", ExitCode.USAGE),
        ({}, {"static": True, "rate": "1/s"}, "estimate.one_load", ExitCode.USAGE),
        ({}, {"static": True, "trace": "t.csv"}, "estimate.one_load", ExitCode.USAGE),
        ({}, {"concurrency": "2", "rate": "1/s"}, "estimate.one_load", ExitCode.USAGE),
        ({"model": None}, {}, "plan.no_model", ExitCode.USAGE),
        ({"cards": "3"}, {}, "plan.heads", ExitCode.MODEL),
        ({"max_num_seqs": "0"}, {}, "plan.number", ExitCode.USAGE),
        ({}, {"concurrency": "0"}, "plan.number", ExitCode.USAGE),
        ({}, {"rate": "many"}, "capacity.bad_rate", ExitCode.USAGE),
        ({"machine": "gaudi1"}, {}, "host.snapshot_file", ExitCode.USAGE),
        ({"model": LLAMA_70B}, {}, "fit.plan_refused", ExitCode.MACHINE),
        ({"extra": DRAFTS}, {}, "estimate.not_known", ExitCode.USAGE),
    ],
)
def test_what_cannot_be_is_refused(
    launch: dict[str, Any], given: dict[str, Any], id: str, code: ExitCode
) -> None:
    with failing(id, code):
        found(launch, **given)


RANGES = {"input_range": "100,1000", "output_range": "50,300", "max_num_seqs": "64"}


@pytest.mark.parametrize(
    ("launch", "given", "load"),
    [
        ({"max_num_seqs": "32"}, {}, ((1024, 1024), (256, 256), 0.0, 32, 0)),
        (RANGES, {}, ((100, 1000), (50, 300), 0.0, 64, 0)),
        (RANGES, {"concurrency": "7"}, ((100, 1000), (50, 300), 0.0, 7, 0)),
        (RANGES, {"rate": "120/m"}, ((100, 1000), (50, 300), 2.0, 0, 0)),
        ({"max_num_seqs": "4"}, {"static": True}, ((1024, 1024), (256, 256), 0.0, 0, 4)),
    ],
)
def test_a_load_is_one_of_three(
    launch: dict[str, Any], given: dict[str, Any], load: tuple[Any, ...]
) -> None:
    made = found(launch, **given).outcome.load
    assert (made.input_range, made.output_range, made.rate, made.clients, made.batch) == load


def test_the_load_of_a_trace_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    rows = [f"{at / 2},{100 + at % 7},{10 + at % 5}" for at in range(900)]
    file.write_text("\n".join(["t_seconds,input_tokens,output_tokens", *rows]))
    recorded, drawn = found(trace=str(file)), found(trace=str(file), arrivals="poisson", rate="2/s")
    assert (recorded.outcome.requests, recorded.outcome.load.recorded) == (900, True)
    assert recorded.outcome.load.rate == pytest.approx(2.0, rel=0.01)
    assert (drawn.outcome.requests > 10_000, drawn.outcome.load.recorded) == (True, False)
    looped = found(trace=str(file), concurrency="3")
    assert (looped.outcome.load.clients, looped.outcome.requests) == (3, 900)


def test_the_setup_is_that_of_the_plan() -> None:
    one = found()
    assert one.plan is not None
    limits, setup = one.outcome.setup.limits, one.outcome.setup.speed.setup
    assert limits.physical_blocks == one.plan.num_blocks
    assert str(limits.max_num_seqs) == one.plan.args.last("--max-num-seqs")
    assert (setup.engine, setup.math, one.dtype, one.hardware) == (
        "v1",
        "bf16",
        "bfloat16",
        "gaudi2",
    )
    fork = found({"engine": "vllm-fork@1.22", "dtype": "fp8", "cards": "2"})
    assert (fork.outcome.setup.speed.setup.engine, fork.dtype) == ("v0", "fp8")
    static = found({"dtype": "fp8"}, static=True)
    setup = static.outcome.setup.speed.setup
    assert (setup.engine, static.engine, setup.kv_bytes, static.plan) == ("static", "", 1.0, None)


def test_what_is_extrapolated_is_noted() -> None:
    def ids(launch: dict[str, Any], **given: Any) -> set[str]:
        return {note.id for note in found(launch, **given).notes}

    assert "estimate.other_product" not in ids({})
    assert "estimate.other_product" in ids({"machine": "gaudi2e"})
    assert "estimate.fused" in ids({"model": MIXTRAL, "cards": "8"})


def test_longer_prompts_have_no_shorter_first_token() -> None:
    # answers of one length would end together, and their clients send together
    launch = {"output_range": "64,512", "max_num_seqs": "64"}
    times = [
        found({**launch, "input_range": f"{tokens // 2},{tokens}"}).outcome.ttft.mean
        for tokens in (256, 512, 1024, 2048)
    ]
    assert times == sorted(times)


CLASSES = (LLAMA, LLAMA_70B, MIXTRAL, DEEPSEEK, HYBRID, STATES)
ENGINES = ("vllm-gaudi", "vllm-fork@1.22", "vllm-fork@1.21", "tgi@3.3.5")
PLANS = [*product(CLASSES, ENGINES, ("bf16", "fp8"), ("gaudi2", "gaudi3"))]


@pytest.mark.parametrize("plan", Random(37).sample(PLANS, 24), ids=" ".join)
def test_a_service_is_predicted_as_its_plan(plan: tuple[str, str, str, str]) -> None:
    model, engine, dtype, machine = plan
    made, prepared = route.plan(
        LaunchOptions(model=model, engine=engine, dtype=dtype, machine=machine, cards=8, force=True)
    )
    planned, record = of_plan(prepared, made), json.dumps(record_of(prepared, made))
    if planned is None:
        assert SETUP not in json.loads(record)
        return
    kept = of_record(json.loads(record), planned.load)
    assert kept is not None
    ours, theirs = planned.setup, kept.setup
    assert (ours.limits, ours.dtype, ours.measured) == (
        theirs.limits,
        theirs.dtype,
        theirs.measured,
    )
    assert (ours.speed.setup, ours.speed.shape) == (theirs.speed.setup, theirs.speed.shape)
    assert (kept.tokens, kept.ttft.mean) == (planned.tokens, planned.ttft.mean)


def test_a_simulated_service_is_not_predicted() -> None:
    made, prepared = route.plan(LaunchOptions(model=LLAMA, engine="simulated"))
    planned = of_plan(prepared, made)
    assert planned is not None
    assert of_record(record_of(prepared, made), planned.load) is None
