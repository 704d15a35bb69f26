"""A text becomes a value of an option, and options become a Request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import OneNumber
from gaudi_launch.core.launch.launch_request import completed
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.request import Request
from tests.support.refusals import failing

TYPED = LaunchOptions(
    model="/m/Small",
    host="0.0.0.0",
    port=9000,
    cards=4,
    modules=(0, 1, 2, 3),
    dtype="fp8",
    input_range=(128, 1024),
    output_range=OneNumber((256, 256)),
    max_model_len=4096,
    max_num_seqs=8,
    reduce=(8, 2000),
    padding_limit="0.0",
    replicas=(1, 3),
    target_ongoing=5,
    trust_remote_code=True,
    extra=("--seed", "1"),
)


def read(options: LaunchOptions) -> Request:
    return completed(options, environment={"A": "b"}, files_dir="/files", stamp="now")


def typed(**texts: Any) -> LaunchOptions:
    return replace(TYPED, **texts)


@pytest.mark.parametrize("text", ["3-0", "0-", "-3", "0-3-5", "0-100", "0-3,2"])
def test_a_range_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(LaunchError) as refused:
        typed(modules=text)
    assert refused.value.exit_code == ExitCode.USAGE


def test_one_number_of_reduce_is_both_only_where_the_scripts_read_it_so() -> None:
    assert read(typed(reduce="8", tuning="reference")).reduce == (8, 8)
    with pytest.raises(LaunchError, match="8") as refused:
        read(typed(reduce="8"))
    assert (refused.value.id, refused.value.exit_code) == ("plan.reduce_words", ExitCode.USAGE)


@pytest.mark.parametrize(
    ("given", "id"),
    [
        ({"model": None}, "plan.no_model"),
        ({"tuning": "fast"}, "plan.tuning"),
        ({"cards": 0}, "plan.number"),
        ({"port": "70000"}, "plan.number"),
        ({"max_num_seqs": 65536}, "plan.number"),
        ({"max_num_batched_tokens": 10**9}, "plan.number"),
        ({"max_model_len": 99999999}, "plan.number"),
        ({"input_range": (9, 1)}, "plan.range"),
        ({"output_range": "/tmp/out"}, "render.output_option"),
        ({"memory_utilization": "1.5"}, "plan.fraction"),
        ({"replicas": "3..1"}, "ray.replicas_words"),
    ],
)
def test_a_value_that_cannot_be_is_a_usage_error(given: dict[str, Any], id: str) -> None:
    with failing(id, ExitCode.USAGE):
        read(typed(**given))
