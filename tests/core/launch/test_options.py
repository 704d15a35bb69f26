"""What is typed becomes a Request, by one pure function."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.launch.options import LaunchOptions, read_request
from gaudi_launch.core.planning.request import Request
from tests.support.refusals import failing

TYPED = LaunchOptions(
    model="/m/Small",
    host="0.0.0.0",
    port="9000",
    cards="4",
    modules="0,1,2,3",
    dtype="fp8",
    input_range="128,1024",
    output_range="256",
    max_model_len="4096",
    max_num_seqs="8",
    reduce="8,2000",
    padding_limit="0.0",
    replicas="1..3",
    target_ongoing="5",
    trust_remote_code=True,
    extra=("--seed", "1"),
)


def read(options: LaunchOptions) -> Request:
    return read_request(options, environment={"A": "b"}, files_dir="/files", stamp="now")


@pytest.mark.parametrize("text", ["3-0", "0-", "-3", "0-3-5", "0-100", "0-3,2"])
def test_a_range_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(LaunchError) as refused:
        read(LaunchOptions("m", modules=text))
    assert refused.value.exit_code == ExitCode.USAGE


def test_one_number_of_reduce_is_both_only_where_the_scripts_read_it_so() -> None:
    assert read(replace(TYPED, reduce="8", tuning="reference")).reduce == (8, 8)
    with pytest.raises(LaunchError, match="8") as refused:
        read(replace(TYPED, reduce="8"))
    assert (refused.value.id, refused.value.exit_code) == ("plan.reduce_words", ExitCode.USAGE)


@pytest.mark.parametrize(
    ("options", "id"),
    [
        (LaunchOptions(), "plan.no_model"),
        (LaunchOptions("m", tuning="fast"), "plan.tuning"),
        (LaunchOptions("m", cards="0"), "plan.number"),
        (LaunchOptions("m", port="70000"), "plan.number"),
        (LaunchOptions("m", input_range="9,1"), "plan.range"),
        (LaunchOptions("m", memory_utilization="1.5"), "plan.fraction"),
        (LaunchOptions("m", replicas="3..1"), "ray.replicas_words"),
    ],
)
def test_a_value_that_cannot_be_is_a_usage_error(options: LaunchOptions, id: str) -> None:
    with failing(id, ExitCode.USAGE):
        read(options)
