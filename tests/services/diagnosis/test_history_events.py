"""When trouble began, and the load before it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gaudi_launch.messages import set_language
from gaudi_launch.services.diagnosis.history_events import Minute, events, minutes_of
from gaudi_launch.services.history import HistoryPoint

# 13:00 UTC
ONE = 1_800_018_000.0


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    set_language("en")
    yield
    monkeypatch.undo()
    time.tzset()


def hour(
    *, doubled: int | None = None, preempted: int | None = None, slow: int | None = None
) -> list[HistoryPoint]:
    """Return two hours of points, ten seconds apart; each event begins at its minute."""
    found = []
    for number in range(720):
        minute = number // 6
        load = 17.0 if doubled is not None and minute >= doubled else 8.0
        found.append(
            HistoryPoint(
                at=ONE + 10 * number,
                running=load,
                waiting=0.0,
                kv_use=0.5,
                ttft_seconds=2.0 if slow is not None and minute >= slow else 0.4,
                preemptions=1.0 if preempted is not None and minute >= preempted else 0.0,
            )
        )
    return found


def said(points: list[HistoryPoint]) -> list[str]:
    return [event.render() for event in events(points)]


def test_preemptions_are_joined_with_the_load_that_doubled_before() -> None:
    assert said(hour(doubled=59, preempted=62)) == [
        (
            "Preemptions began at 14:02, 3 min after the load doubled (8 -> 17 requests): 348 "
            "since then."
        )
    ]


def test_preemptions_without_a_change_of_the_load() -> None:
    assert said(hour(preempted=62)) == ["Preemptions began at 14:02: 348 since then."]


def test_a_doubling_long_before_or_after_is_no_reason() -> None:
    assert said(hour(doubled=20, preempted=62)) == ["Preemptions began at 14:02: 348 since then."]
    assert said(hour(doubled=80, preempted=62)) == ["Preemptions began at 14:02: 348 since then."]


def test_a_ttft_that_doubled_is_named_with_its_values() -> None:
    assert said(hour(doubled=58, slow=60)) == [
        (
            "TTFT rose from 400 ms to 2000 ms at 14:00, 2 min after the load doubled (8 -> 17 "
            "requests)."
        )
    ]


def test_a_quiet_hour_has_no_events() -> None:
    assert said(hour()) == []
    assert said([]) == []
    assert said([HistoryPoint(ONE)]) == []


def test_a_full_cache_is_named() -> None:
    points = [
        HistoryPoint(ONE + 60 * number, running=8.0, kv_use=0.97 if number > 30 else 0.5)
        for number in range(60)
    ]
    assert said(points) == ["The KV cache has been 95% full or more since 13:31."]


def test_the_latest_episode_counts() -> None:
    early = [
        HistoryPoint(ONE + 60 * number, preemptions=float(number in (5, 6))) for number in range(60)
    ]
    again = [
        HistoryPoint(ONE + 60 * number, preemptions=float(number > 90)) for number in range(60, 120)
    ]
    assert said([*early, *again]) == ["Preemptions began at 14:31: 29 since then."]


def test_points_are_grouped_by_minute() -> None:
    points = [
        HistoryPoint(ONE + 1, running=1.0, kv_use=0.2, preemptions=1.0),
        HistoryPoint(
            ONE + 31, running=2.0, waiting=3.0, kv_use=0.9, preemptions=2.0, ttft_seconds=0.5
        ),
        HistoryPoint(ONE + 200),
    ]
    assert minutes_of(points) == [
        Minute(ONE, 3.0, 0.5, 0.9, 3.0),
        Minute(ONE + 180, None, None, None, 0.0),
    ]
