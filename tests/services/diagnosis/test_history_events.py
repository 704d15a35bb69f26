"""When trouble began, and the load before it."""

from __future__ import annotations

import pytest

from gaudi_launch.messages import Message, message
from gaudi_launch.services.diagnosis.history_events import Minute, events, minutes_of
from gaudi_launch.services.history import HistoryPoint
from tests.support.clock import utc

# 13:00 UTC
ONE = 1_800_018_000.0


__all__ = ["utc"]
pytestmark = pytest.mark.usefixtures("utc")


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


def at(minute: int, **values: float) -> HistoryPoint:
    return HistoryPoint(ONE + 60 * minute, **values)


def preempted_at(*minutes: int) -> list[Message]:
    return events([at(number, preemptions=float(number in minutes)) for number in range(60)])


@pytest.mark.parametrize(
    ("minutes", "clock", "count"),
    [((0, 10), "13:00", "2"), ((0, 11), "13:11", "1"), ((3, 12, 21, 30), "13:03", "4")],
)
def test_an_episode_is_new_after_more_than_ten_minutes_without(
    minutes: tuple[int, ...], clock: str, count: str
) -> None:
    assert preempted_at(*minutes) == [
        message("diagnose.history_preemptions", at=clock, count=count)
    ]


@pytest.mark.parametrize(("use", "full"), [(0.949, False), (0.95, True), (1.0, True)])
def test_a_cache_is_full_from_95_percent_on(use: float, full: bool) -> None:
    assert events([at(0, kv_use=0.2), at(1, kv_use=use)]) == (
        [message("diagnose.history_kv_full", at="13:01")] if full else []
    )


def rises(*readings: tuple[int, float]) -> list[Message]:
    """Return the events of TTFT, given as (minute, seconds)."""
    return events([at(minute, ttft_seconds=seconds) for minute, seconds in readings])


def ttft(clock: str, before: str, after: str) -> list[Message]:
    return [message("diagnose.history_ttft", at=clock, before=before, after=after)]


def test_a_rise_needs_three_earlier_minutes() -> None:
    assert rises((0, 0.1), (1, 0.1), (2, 0.1), (3, 0.2)) == ttft("13:03", "100", "200")
    assert rises((0, 0.1), (1, 0.1), (2, 0.2)) == []


def test_a_rise_is_twice_the_usual_and_50_ms_more() -> None:
    assert rises((0, 0.1), (1, 0.1), (2, 0.1), (3, 0.199)) == []
    assert rises((0, 0.05), (1, 0.05), (2, 0.05), (3, 0.1)) == ttft("13:03", "50", "100")
    assert rises((0, 0.04), (1, 0.04), (2, 0.04), (3, 0.089)) == []
    # one slow minute does not move the median
    usual = ((0, 0.1), (1, 9.0), (2, 0.1))
    assert rises(*usual, (3, 0.3)) == ttft("13:03", "100", "300")


def test_the_base_of_a_rise_are_the_ten_minutes_before_it() -> None:
    assert rises((0, 0.1), (8, 0.1), (9, 0.1), (10, 0.2)) == ttft("13:10", "100", "200")
    assert rises((0, 0.1), (9, 0.1), (10, 0.1), (11, 0.2)) == []


def test_a_rise_begins_with_its_first_minute_and_the_latest_counts() -> None:
    low = ((0, 0.1), (1, 0.1), (2, 0.1))
    assert rises(*low, (3, 0.2), (4, 0.3)) == ttft("13:03", "100", "200")
    assert rises(*low, (3, 0.2), (4, 0.1), (5, 0.3)) == ttft("13:05", "100", "300")


def with_load(preempted: int, doubled: int, low: float = 8.0, high: float = 17.0) -> list[Message]:
    """Return the events of preemptions and of a load that rose, each at its minute."""
    return events(
        [
            at(
                number,
                running=high if number >= doubled else low,
                preemptions=float(number == preempted),
            )
            for number in range(120)
        ]
    )


def after_load(minutes: int, low: str = "8", high: str = "17") -> list[Message]:
    return [
        message(
            "diagnose.history_preemptions_load",
            at="14:00",
            minutes=str(minutes),
            load_before=low,
            load_after=high,
            count="1",
        )
    ]


def test_a_doubling_of_the_load_is_a_reason_for_thirty_minutes() -> None:
    alone = [message("diagnose.history_preemptions", at="14:00", count="1")]
    assert with_load(60, 60) == after_load(0)
    assert with_load(60, 30) == after_load(30)
    assert with_load(60, 29) == alone
    assert with_load(60, 61) == alone


def test_a_load_of_few_requests_doubles_by_two_at_least() -> None:
    alone = [message("diagnose.history_preemptions", at="14:00", count="1")]
    assert with_load(60, 50, 2.0, 4.0) == after_load(10, "2", "4")
    assert with_load(60, 50, 1.0, 2.9) == alone
    assert with_load(60, 50, 8.0, 15.9) == alone


def test_each_event_names_the_load_that_doubled_before_it() -> None:
    points = [
        at(
            number,
            running=17.0 if number >= 50 else 8.0,
            kv_use=1.0 if number >= 52 else 0.5,
            ttft_seconds=1.0 if number >= 55 else 0.4,
        )
        for number in range(60)
    ]
    load = {"load_before": "8", "load_after": "17"}
    assert events(points) == [
        message("diagnose.history_kv_full_load", at="13:52", minutes="2", **load),
        message(
            "diagnose.history_ttft_load",
            at="13:55",
            minutes="5",
            **load,
            before="400",
            after="1000",
        ),
    ]
