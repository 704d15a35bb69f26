"""Every argv we make is one that the engine's own parser takes, in both tunings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.engines.registry import find
from gaudi_launch.errors import LaunchError
from gaudi_launch.host import simulated
from gaudi_launch.models.records import Model
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from tests.engines.options_table import FILES, Refused, parse
from tests.engines.test_reference import SCRIPTS, records

HOSTS = {name: simulated.make(name) for name in ("hls2", "gaudi2e-8", "gaudi2e-4", "gaudi3-oam")}
MODELS = (
    Model("/m/Qwen3-30B-A3B", "Qwen3-30B-A3B", "config.json", moe=True, experts=128, heads=32, kv_heads=4),
    Model("/m/Qwen2-7B-Instruct", "Qwen2-7B-Instruct", "config.json", model_type="qwen2", moe=False, heads=32),
    Model("/m/unknown", "unknown"),
    Model("/m/own", "own", "config.json", moe=False, remote_code=True, max_position_embeddings=32768),
)
ENGINES = {"1.21": "vllm-fork@1.21", "1.22": "vllm-fork@1.22", "deepseek_r1": "deepseek_r1"}


def test_the_table_refuses_what_is_not_in_it() -> None:
    with pytest.raises(Refused):
        parse("1.22", ["--use-v2-block-manager-x"])
    with pytest.raises(Refused):
        parse("1.21", ["--max-num-seqs", "many"])
    with pytest.raises(Refused):
        parse("1.21", ["--dtype", "int3"])


@pytest.mark.parametrize(("name", "record"), [case for case in records() if case.values[1]["launched"]])
def test_the_recorded_argv_is_taken(name: str, record: dict[str, Any]) -> None:
    """The scripts' own argv passes the table, so that the table is a fair judge of ours."""
    parse(SCRIPTS[name][0], record["argv"][2:])


numbers = st.one_of(st.none(), st.integers(1, 300))
requests = st.builds(
    Request,
    model=st.sampled_from([model.path for model in MODELS]),
    cards=st.one_of(st.none(), st.integers(1, 8)),
    host=st.sampled_from([None, "0.0.0.0", "::"]),
    port=st.one_of(st.none(), st.integers(1, 65535)),
    dtype=st.sampled_from([None, "bfloat16", "float16", "fp8", "awq", "gptq"]),
    input_range=st.one_of(st.none(), st.tuples(st.integers(1, 900), st.integers(900, 60000))),
    output_range=st.one_of(st.none(), st.tuples(st.integers(1, 900), st.integers(900, 9000))),
    max_num_batched_tokens=st.one_of(st.none(), st.integers(128, 70000)),
    max_model_len=st.one_of(st.none(), st.integers(128, 70000)),
    max_num_seqs=numbers,
    scheduler_steps=st.sampled_from([None, None, 1, 8]),
    cache_dir=st.sampled_from([None, "/c"]),
    reduce=st.one_of(st.none(), st.tuples(st.integers(1, 64), st.integers(1, 30000))),
    skip_warmup=st.booleans(),
    profile=st.booleans(),
    no_zero_padding=st.booleans(),
    no_fused_sdpa=st.booleans(),
    inc_fp8=st.booleans(),
    quant_config=st.sampled_from([None, None, "/q.json"]),
    max_prefill_seqs=st.sampled_from([None, None, 4]),
    memory_utilization=st.sampled_from([None, None, "0.8"]),
    max_capture_len=st.sampled_from([None, None, 4096]),
    tuning=st.sampled_from(["auto", "reference"]),
    trust_remote_code=st.sampled_from([None, True]),
    served_name=st.sampled_from([None, "name"]),
)
_OPTIONAL = ("input_range", "output_range", "max_num_batched_tokens", "scheduler_steps", "reduce", "quant_config")
_MORE = ("max_prefill_seqs", "memory_utilization", "max_capture_len", "dtype", "no_zero_padding", "no_fused_sdpa")


@pytest.mark.parametrize("version", FILES)
@settings(max_examples=120, deadline=None)
@given(request_=requests, model=st.sampled_from(MODELS), host=st.sampled_from(sorted(HOSTS)), data=st.data())
def test_any_request_makes_an_argv_that_the_engine_takes(
    version: str, request_: Request, model: Model, host: str, data: st.DataObject
) -> None:
    # most random requests ask for something the version lacks: take some wishes back
    back = data.draw(st.sets(st.sampled_from([*_OPTIONAL, *_MORE, "inc_fp8", "profile"])))
    blank: dict[str, Any] = {name: False if name.startswith(("no_", "inc", "profile")) else None for name in back}
    request_ = replace(request_, model=model.path, **blank)
    try:
        plan = make_plan(request_, HOSTS[host], model, find(ENGINES[version]))
    except LaunchError as error:
        assert error.exit_code != 0
        assert str(error)
        return
    parsed = parse(version, plan.command.argv[3:])
    assert parsed.model == model.path
    assert parsed.tensor_parallel_size == len(plan.placement.modules)
    assert all(isinstance(value, str) for value in plan.command.env.values())
