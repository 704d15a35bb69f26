"""The verdict on a measurement, by the limits of profiles/acceptance.yaml. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import shipped
from gaudi_launch.extensions.acceptance.records import StepMeasurement, StepResult

_WORST = ("wrong", "fail", "warn")


def facts() -> Mapping[str, Any]:
    """Return the durations and limits of the steps."""
    found: Mapping[str, Any] = shipped("acceptance.yaml")
    return found


@dataclass(frozen=True)
class _Limit:
    """Shares of the peak: pass from ``ok`` on, fail below ``fail``; None: no limit."""

    ok: float | None
    fail: float
    source: str
    peak: str


def _limit_of(name: str, product: str) -> _Limit:
    row = facts()["limits"].get(name, {})
    shares = row.get("products", {}).get(product)
    if shares is None:
        return _Limit(None, 0.0, row.get("source", ""), row.get("peak", ""))
    return _Limit(shares["ok"], shares["fail"], row["source"], row["peak"])


def judge(name: str, product: str, found: StepMeasurement, seconds: float) -> StepResult:
    """Return a step's result: each figure against its limit and the others."""
    limit = _limit_of(name, product)
    shares = {
        who: value / found.peaks[who] for who, value in found.values.items() if who in found.peaks
    }
    verdicts: list[tuple[str, Message]] = []
    for who, value in found.values.items():
        verdicts += _against_peak(who, value, shares.get(who), limit, found)
    verdicts += [("fail", why) for why in found.bad.values()]
    verdicts += [("warn", why) for why in found.slow.values()]
    slowest, spread = "", None
    # cards by their rate; groups, which may have different sizes, by their share of the peak
    rates = shares if limit.peak == "group" else found.values
    if len(rates) > 1 and found.peaks:
        slowest, spread = _slowest(rates)
        verdicts += _against_others(found, rates)
    verdicts.sort(key=lambda each: _WORST.index(each[0]))
    return StepResult(
        name,
        verdicts[0][0] if verdicts else _without_fault(limit, found),
        tuple(why for _, why in verdicts),
        dict(found.values),
        found.unit,
        shares,
        limit.ok,
        slowest,
        spread,
        limit.source,
        seconds,
        dict(found.details),
    )


def _without_fault(limit: _Limit, found: StepMeasurement) -> str:
    """Return the status of a step without a fault: a rate needs a limit to pass."""
    if limit.ok is not None or not (found.peaks or found.values):
        return "pass"
    return "reported"


def _slowest(rates: Mapping[str, float]) -> tuple[str, float | None]:
    """Return the slowest, and its distance from the best as a share of that."""
    slowest, most = min(rates, key=lambda who: rates[who]), max(rates.values())
    return slowest, (most - rates[slowest]) / most if most > 0 else None


def _against_peak(
    who: str, value: float, share: float | None, limit: _Limit, found: StepMeasurement
) -> list[tuple[str, Message]]:
    if share is None:
        return []
    shown = {"who": who, "value": f"{value:.4g}", "unit": found.unit, "share": f"{100 * share:.0f}"}
    if share > facts()["above_peak"]:
        return [("wrong", message("accept.above_peak", **shown))]
    if limit.ok is None or share >= limit.ok:
        return []
    expected = {"least": f"{limit.ok * found.peaks[who]:.4g}", "percent": f"{100 * limit.ok:.0f}"}
    if share < limit.fail:
        return [("fail", message("accept.too_low", **shown, **expected))]
    return [("warn", message("accept.low", **shown, **expected))]


def _against_others(
    found: StepMeasurement, rates: Mapping[str, float]
) -> list[tuple[str, Message]]:
    """Return what is slower than the others by more than the accepted spread."""
    middle, allowed = median(rates.values()), facts()["spread"]
    verdicts = []
    for who, rate in rates.items():
        below = 1 - rate / middle if middle else 0.0
        shown = {
            "who": who,
            "below": f"{100 * below:.0f}",
            "value": f"{found.values[who]:.4g}",
            "unit": found.unit,
        }
        if below > allowed["fail"]:
            verdicts.append(("fail", message("accept.behind", **shown)))
        elif below > allowed["warn"]:
            verdicts.append(("warn", message("accept.behind", **shown)))
    return verdicts
