"""Predictions for plans and for services by their records."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.app.estimate import of_record
from gaudi_launch.performance.prediction import Load

LOAD = Load("concurrency", 1024, 256, 32)
RECORD: dict[str, Any] = {
    "engine": {"name": "vllm-fork", "version": "1.22"},
    "model": {"path": "meta-llama/Llama-3.1-8B-Instruct"},
    "dtype": "bfloat16",
    "modules": [0],
}


def test_a_service_is_predicted_by_its_record() -> None:
    found = of_record(RECORD, LOAD)
    assert found is not None
    assert (found.case.setup.cards, found.case.setup.engine, found.case.setup.math) == (
        1,
        "v0",
        "bf16",
    )


def test_more_cards_are_faster() -> None:
    one, four = of_record(RECORD, LOAD), of_record({**RECORD, "modules": [0, 1, 2, 3]}, LOAD)
    assert one is not None and four is not None
    assert four.prediction.throughput.expected > 1.5 * one.prediction.throughput.expected


@pytest.mark.parametrize(
    "change",
    [
        {"modules": []},
        {"engine": {"name": "cpu", "version": "1"}},
        {"engine": {"name": "gone", "version": "1"}},
        {"model": {"path": "not-known"}},
        {"dtype": "mxfp4"},
        {"engine": None},
    ],
)
def test_a_record_that_does_not_say_enough_is_not_predicted(change: dict[str, Any]) -> None:
    assert of_record({**RECORD, **change}, LOAD) is None
