"""Every argv we make is one that the engine's own parser takes, in both tunings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from tests.support.every_case import examples
from tests.support.launches import HOSTS, MODELS, requests
from tests.support.options_table import FILES, Refused, parse
from tests.support.reference_scripts import SCRIPTS, records

ENGINES = {"1.21": "vllm-fork@1.21", "1.22": "vllm-fork@1.22", "deepseek_r1": "deepseek_r1"}


def test_the_table_refuses_what_is_not_in_it() -> None:
    for words in ("--use-v2-block-manager-x", "--max-num-seqs many", "--dtype int3"):
        with pytest.raises(Refused):
            parse("1.21", words.split())


@pytest.mark.parametrize(
    ("name", "record"), [case for case in records() if case.values[1]["launched"]]
)
def test_the_recorded_argv_is_taken(name: str, record: dict[str, Any]) -> None:
    """The scripts' own argv passes the table, so that the table is a fair judge of ours."""
    parse(SCRIPTS[name][0], record["argv"][2:])


_OPTIONAL = (
    "input_range",
    "output_range",
    "max_num_batched_tokens",
    "scheduler_steps",
    "reduce",
    "quant_config",
)
_MORE = (
    "max_prefill_seqs",
    "memory_utilization",
    "max_capture_len",
    "dtype",
    "no_zero_padding",
    "no_fused_sdpa",
)


@pytest.mark.parametrize("version", FILES)
@settings(max_examples=examples(60, 120), deadline=None)
@given(
    request_=requests,
    model=st.sampled_from(MODELS),
    host=st.sampled_from(sorted(HOSTS)),
    data=st.data(),
)
def test_any_request_makes_an_argv_that_the_engine_takes(
    version: str, request_: Request, model: Model, host: str, data: st.DataObject
) -> None:
    # most random requests ask for something the version lacks: take some wishes back
    back = data.draw(st.sets(st.sampled_from([*_OPTIONAL, *_MORE, "inc_fp8", "profile"])))
    blank: dict[str, Any] = {
        name: False if name.startswith(("no_", "inc", "profile")) else None for name in back
    }
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
