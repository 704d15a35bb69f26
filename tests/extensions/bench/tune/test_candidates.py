"""The plans that tune compares: variations in their order, each plan once."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.launch.options import LaunchOptions
from gaudi_launch.extensions.bench.tune.candidates import candidates
from tests.support.refusals import failing

pytestmark = pytest.mark.usefixtures("plain_english")

R1 = {"model": "deepseek-ai/DeepSeek-R1", "trust_remote_code": True}


def found(options: dict[str, Any], most: int) -> list[tuple[str, int, str | None]]:
    """Return the names without recommended batches, the cards and the types of weights."""
    base = {"model": "Qwen/Qwen3-8B", "machine": "simulated:hls2", "cards": "2"}
    made = candidates(LaunchOptions(**{**base, **options}), clients=16, most=most)
    assert len({each.hash for each in made}) == len(made)
    return [(each.name.partition(" -b ")[0], each.cards, each.options.dtype) for each in made]


@pytest.mark.parametrize(
    ("options", "most", "names"),
    [
        # the three recommended ones have the same weights
        ({}, 5, [("given", 2, None), *[("-n 2", 2, "bf16")] * 3, ("-b 16", 2, None)]),
        ({"dtype": "fp8"}, 4, [("given", 2, "fp8"), *[("-n 2", 2, "fp8")] * 3]),
        (
            {"extra": ("--max-num-seqs", "16")},
            3,
            [("given", 2, None), ("default", 2, None), ("-n 2", 2, "bf16")],
        ),
        # nothing is recommended without sizes
        ({"model": "me/unknown"}, 2, [("given", 2, None), ("-b 16", 2, None)]),
        # its start script has no -t
        (
            {**R1, "cards": None},
            9,
            [
                *[("given", 8, None), *[("-n 8", 8, None)] * 3],
                *[(f"-b {batch}", 8, None) for batch in (16, 8, 128, 32)],
            ],
        ),
        ({"engine": "cpu", "machine": None, "cards": None}, 1, [("given", 1, None)]),
    ],
)
def test_each_plan_is_a_candidate_once_and_the_given_one_is_first(
    options: dict[str, Any], most: int, names: list[tuple[str, int, str | None]]
) -> None:
    assert found(options, most) == names


def test_a_given_plan_that_cannot_be_is_refused() -> None:
    with failing("plan.too_long", ExitCode.MODEL):
        found({"max_model_len": "1M"}, 2)
