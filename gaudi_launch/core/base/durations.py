"""Durations for people: one notation in each language."""

from __future__ import annotations

from gaudi_launch.core.base.messages import text

# an estimate of less than this is in seconds, of less than these seconds in minutes
_LEAST_MINUTES, _LEAST_HOURS = 120, 7200


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: 3 d 4 h, 12 min 5 s."""
    total = max(0, round(seconds))
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if days:
        return text("time.days", n=days, hours=hours % 24)
    if hours:
        return text("time.hours", n=hours, minutes=minutes % 60)
    if minutes:
        return text("time.minutes", n=minutes, seconds=total % 60)
    return text("time.seconds", n=total)


def rough(seconds: float) -> str:
    """Return an estimated duration in one unit: 74 s, 4 min, 2.5 h."""
    number, id = _in_one_unit(seconds)
    return text(id, n=number)


def span(low: float, high: float) -> str:
    """Return a range of estimated durations: 74 s to 4 min, 7 to 42 min."""
    (least, of_least), (_, of_most) = _in_one_unit(low), _in_one_unit(high)
    if of_least == of_most:
        return text("time.span_one_unit", low=least, high=rough(high))
    return text("time.span", low=rough(low), high=rough(high))


def _in_one_unit(seconds: float) -> tuple[str, str]:
    """Return a number, and the message that has its unit."""
    if seconds < _LEAST_MINUTES:
        return f"{seconds:.0f}", "time.seconds"
    if seconds < _LEAST_HOURS:
        return f"{seconds / 60:.0f}", "time.about_minutes"
    return f"{seconds / 3600:.1f}", "time.about_hours"
