"""The goal `balanced`: tokens per card, less for a user who waits."""

from __future__ import annotations

import pytest

from gaudi_launch.core.predict.balance import balanced


@pytest.mark.parametrize(
    ("ttft", "tpot", "score"),
    [
        (0.1, 0.01, 600.0),
        (2.0, 0.1, 600.0),
        (4.0, 0.1, 300.0),
        (2.0, 0.3, 200.0),
        (4.0, 0.3, 100.0),
    ],
)
def test_a_latency_above_its_limit_takes_off_as_much_as_it_is_above(
    ttft: float, tpot: float, score: float
) -> None:
    assert balanced(600, ttft=ttft, tpot=tpot) == pytest.approx(score)
