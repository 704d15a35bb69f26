"""When trouble began, and the load before it."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.services.diagnosis.history_events import events
from gaudi_launch.core.services.history import HistoryPoint
from tests.support.clock import utc

# 13:00 UTC
ONE = 1_800_018_000.0


__all__ = ["utc"]
pytestmark = pytest.mark.usefixtures("utc")


def at(minute: int, **values: float) -> HistoryPoint:
    return HistoryPoint(ONE + 60 * minute, **values)


def rises(*readings: tuple[int, float]) -> list[Message]:
    """Return the events of TTFT, given as (minute, seconds)."""
    return events([at(minute, ttft_seconds=seconds) for minute, seconds in readings])


def ttft(clock: str, before: str, after: str) -> list[Message]:
    return [message("diagnose.history_ttft", at=clock, before=before, after=after)]


def test_the_base_of_a_rise_are_the_ten_minutes_before_it() -> None:
    assert rises((0, 0.1), (8, 0.1), (9, 0.1), (10, 0.2)) == ttft("13:10", "100", "200")
    assert rises((0, 0.1), (9, 0.1), (10, 0.1), (11, 0.2)) == []
