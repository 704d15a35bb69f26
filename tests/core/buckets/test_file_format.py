"""Bucket files of vllm-gaudi: reading as the engine does, and a list of ours that comes through
whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.core.buckets.engine_buckets import engine_buckets
from gaudi_launch.core.buckets.families import CONTEXT_LADDER
from gaudi_launch.core.buckets.file_format import read
from tests.support.bucket_parity import SMALL


def test_lines() -> None:
    text = '# c\n\n  (1, [128, 256], 0)\n(range(1,3), 1, range(128, 0, -64))\n("2", 4.5, True)\n'
    assert read(text) == (
        ((1, 128, 0), (1, 256, 0), (2, 4, 1)),
        ((1, 1, 64), (1, 1, 128), (2, 1, 64), (2, 1, 128)),
    )


@pytest.mark.parametrize(
    "line", ["(range(0, 9000),) * 3", "(range(0, 46), range(0, 46), range(1, 47))"]
)
def test_a_file_of_countless_buckets_is_not_written_out(line: str) -> None:
    line = line.replace("(range(0, 9000),) * 3", str((list(range(9000)),) * 3))
    with pytest.raises(BucketError, match="hang: the bucket file has more than 100000 buckets"):
        read(f"{line}\n{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        *("x", "(1, 2)", "[1, 2, 3]", "(range(3), 1, 4)", "(range(0, 10001), 1, 4)", "(1,2,3"),
        *("-" * 100_000 + "1", "-" * 3000 + "1", "(" * 300),
    ],
)
def test_unreadable_lines_stop_the_engine(line: str) -> None:
    with pytest.raises(BucketError, match="AttributeError"):
        read(f"(1, 128, 0)\n{line}\n")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        engine_buckets(CONTEXT_LADDER, "file", {}, {**SMALL, "bucket_file": text})
    except BucketError as error:
        assert ": " in str(error)


@pytest.mark.parametrize("env", [{}, {"VLLM_CONTIGUOUS_PA": "true"}])
def test_a_producible_list_comes_through_whole(env: dict[str, str]) -> None:
    plan = Buckets(
        [[1, 256, 0], [1, 256, 31], [1, 2048, 8]], [[1, 1, 32], [4, 1, 128], [16, 1, 512]]
    )
    text = "".join(f"{tuple(bucket)}\n" for bucket in (*plan.prompt, *plan.decode))
    assert engine_buckets(CONTEXT_LADDER, "file", env, {**SMALL, "bucket_file": text}) == plan
