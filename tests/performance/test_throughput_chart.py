"""The picture of tokens per second against sequences at once."""

from __future__ import annotations

import pytest

from gaudi_launch.performance.evidence import Band
from gaudi_launch.performance.throughput_chart import Point, batches, picture
from tests.support.plots import needs_matplotlib, texts


@pytest.mark.parametrize(
    ("most", "found"), [(1, [1]), (2, [1, 2]), (16, [1, 2, 4, 8, 16]), (20, [1, 2, 4, 8, 16, 20])]
)
def test_the_sequences_of_the_picture_are_powers_of_two_and_the_most(
    most: int, found: list[int]
) -> None:
    assert batches(most) == found


@needs_matplotlib
def test_the_texts_of_the_picture() -> None:
    points = [Point(batch, Band(8.0 * batch, 10.0 * batch, 12.0 * batch)) for batch in (1, 4, 20)]
    assert texts(picture(points, "A model", ".svg")) == [
        *("1", "4", "20", "concurrent sequences"),
        *("10", "20", "50", "100", "200", "output tokens per second"),
        "Throughput against concurrent sequences",
        *("predicted range", "expected"),
        "A model",
    ]
