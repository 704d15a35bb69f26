"""Figures against their limits and against each other."""

from __future__ import annotations

import pytest

from gaudi_launch.extensions.acceptance.judge import judge
from gaudi_launch.extensions.acceptance.records import StepMeasurement, all_steps


@pytest.mark.parametrize(("shares", "status"), [((0.97, 0.97), "pass"), ((0.85, 0.97), "fail")])
def test_groups_of_different_sizes_are_compared_by_their_share(
    shares: tuple[float, float], status: str
) -> None:
    # one card of the second group is in use
    peaks = {"0-1-2-3": 120.0, "5-6-7": 80.0}
    values = {who: share * peaks[who] for who, share in zip(peaks, shares, strict=True)}
    found = judge(all_steps()["all_reduce"], "gaudi3-pcie", StepMeasurement(values, peaks))
    assert (found.status, found.slowest) == (status, "0-1-2-3")
