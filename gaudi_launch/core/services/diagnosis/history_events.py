"""When a service's trouble began, from its history. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mean
from gaudi_launch.core.services.history import HistoryPoint

_MINUTE = 60.0
# an episode is new after this time without the event
_QUIET_MINUTES = 10
# the load of these minutes before is compared
_BASE_MINUTES = 10
_LEAST_BASE_MINUTES = 3
# a doubling this long before may be the reason
_REASON_MINUTES = 30
_FULL = 0.95


def minutes_of(found: Sequence[HistoryPoint]) -> list[HistoryPoint]:
    """Return the means of each minute, oldest first, without empty minutes.

    The load counts as running, preemptions are added up.
    """
    groups: dict[int, list[HistoryPoint]] = {}
    for point in found:
        groups.setdefault(int(point.at // _MINUTE), []).append(point)
    return [
        HistoryPoint(
            at=number * _MINUTE,
            running=mean(point.load for point in group),
            ttft_seconds=mean(point.ttft_seconds for point in group),
            kv_use=max((each.kv_use for each in group if each.kv_use is not None), default=None),
            preemptions=sum(point.preemptions or 0.0 for point in group),
        )
        for number, group in sorted(groups.items())
    ]


def events(found: Sequence[HistoryPoint]) -> list[Message]:
    """Return what began and when, each with the doubling of the load before it."""
    minutes = minutes_of(found)
    said = []
    preempted = _began(minutes, lambda minute: bool(minute.preemptions))
    if preempted is not None:
        count = sum(minute.preemptions or 0 for minute in minutes if minute.at >= preempted)
        said.append(_event("preemptions", preempted, minutes, count=f"{count:.0f}"))
    full = _began(minutes, lambda minute: (minute.kv_use or 0.0) >= _FULL)
    if full is not None:
        said.append(_event("kv_full", full, minutes))
    slow = _last_rise(minutes, lambda minute: minute.ttft_seconds, least=0.05)
    if slow is not None:
        at, before, after = slow
        values = {"before": f"{before * 1000:.0f}", "after": f"{after * 1000:.0f}"}
        said.append(_event("ttft", at, minutes, **values))
    return said


_EVENTS = {
    "preemptions": "diagnose.history_preemptions",
    "kv_full": "diagnose.history_kv_full",
    "ttft": "diagnose.history_ttft",
}
# the same after the load had doubled
_AFTER_LOAD = {
    "preemptions": "diagnose.history_preemptions_load",
    "kv_full": "diagnose.history_kv_full_load",
    "ttft": "diagnose.history_ttft_load",
}


def _event(kind: str, at: float, minutes: Sequence[HistoryPoint], **values: str) -> Message:
    since = at - _REASON_MINUTES * _MINUTE
    earlier = [minute for minute in minutes if since <= minute.at <= at]
    before = [minute for minute in minutes if minute.at < since]
    rise = _last_rise([*before[-_BASE_MINUTES:], *earlier], lambda minute: minute.load, least=2.0)
    clock = time.strftime("%H:%M", time.localtime(at))
    # the minutes before give the base only: a doubling among them is too old
    if rise is None or rise[0] < since:
        return message(_EVENTS[kind], at=clock, **values)
    rose, load_before, load_after = rise
    return message(
        _AFTER_LOAD[kind],
        at=clock,
        minutes=f"{(at - rose) / _MINUTE:.0f}",
        load_before=f"{load_before:.0f}",
        load_after=f"{load_after:.0f}",
        **values,
    )


def _began(
    minutes: Sequence[HistoryPoint], happens: Callable[[HistoryPoint], bool]
) -> float | None:
    """Return when the latest episode began; None without one."""
    began, last = None, float("-inf")
    for minute in minutes:
        if not happens(minute):
            continue
        if minute.at - last > _QUIET_MINUTES * _MINUTE:
            began = minute.at
        last = minute.at
    return began


def _last_rise(
    minutes: Sequence[HistoryPoint], value: Callable[[HistoryPoint], float | None], *, least: float
) -> tuple[float, float, float] | None:
    """Return the latest begin of at least twice the median of the minutes before.

    With the values before and after.
    """
    found = None
    was_high = False
    known = [(minute.at, reading) for minute in minutes if (reading := value(minute)) is not None]
    for at, reading in known:
        base = [each for time_of, each in known if at - _BASE_MINUTES * _MINUTE <= time_of < at]
        if len(base) < _LEAST_BASE_MINUTES:
            continue
        # the minute in which the rise began must not raise the base
        usual = median(base)
        is_high = reading >= 2 * usual and reading - usual >= least
        if is_high and not was_high:
            found = (at, usual, reading)
        was_high = is_high
    return found
