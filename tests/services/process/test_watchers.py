"""Watchers between the supervisor and the receivers of events."""

from __future__ import annotations

import time
from unittest.mock import Mock

import pytest

from gaudi_launch.services.log.follow import LaunchProgress
from gaudi_launch.services.probe import Readiness
from gaudi_launch.services.process.watchers import Warmed

READY = Readiness(True, "ready")


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({}, (4.0, None)),
        ({"warmup_seconds": 12, "num_blocks": "7"}, (12.0, 7)),
        ({"num_blocks": 0}, (4.0, 0)),
    ],
)
def test_the_cache_gets_the_time_of_the_warm_up_and_the_blocks(
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, str | int | float],
    told: tuple[float, int | None],
) -> None:
    clock = iter([1.0, 10.0, 14.0, 99.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    inner, keeper = Mock(), Mock()
    warmed = Warmed(inner, keeper)
    warmed.started(7)
    warmed.progress(LaunchProgress(facts=facts))
    warmed.ready(READY)
    keeper.warm.assert_called_once_with(*told)
    assert [call[0] for call in inner.method_calls] == ["started", "progress", "ready"]
