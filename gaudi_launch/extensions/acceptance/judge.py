"""The verdict on a measurement, by the limits of profiles/acceptance.yaml. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.yaml_reader import shipped
from gaudi_launch.extensions.acceptance.records import StepMeasurement, StepResult

_WORST = ("wrong", "fail", "warn")


def facts() -> Mapping[str, Any]:
    """Return the durations and limits of the steps."""
    found: Mapping[str, Any] = shipped("acceptance.yaml")
    return found


def judge(name: str, product: str, found: StepMeasurement) -> StepResult:
    """Return a step's result: each figure against its limit and the others."""
    row = facts()["limits"].get(name, {})
    limit = row.get("products", {}).get(product, {})
    shares = {
        who: value / found.peaks[who] for who, value in found.values.items() if who in found.peaks
    }
    verdicts: list[tuple[str, Message]] = []
    for who, value in found.values.items():
        verdicts += _against_peak(who, value, shares.get(who), limit, found)
    verdicts += found.troubles
    slowest, spread = "", None
    # cards by their rate; groups, which may have different sizes, by their share of the peak
    rates = shares if row.get("peak") == "group" else found.values
    if len(rates) > 1 and found.peaks:
        slowest, most = min(rates, key=lambda who: rates[who]), max(rates.values())
        spread = (most - rates[slowest]) / most if most > 0 else None
        verdicts += _against_others(found, rates)
    verdicts.sort(key=lambda each: _WORST.index(each[0]))
    return StepResult(
        name,
        verdicts[0][0] if verdicts else _without_fault(limit, found),
        tuple(why for _, why in verdicts),
        dict(found.values),
        found.unit,
        shares,
        limit.get("ok"),
        slowest,
        spread,
        row.get("source", ""),
        details=dict(found.details),
    )


def _without_fault(limit: Mapping[str, float], found: StepMeasurement) -> str:
    """Return the status of a step without a fault: a rate needs a limit to pass."""
    if limit or not (found.peaks or found.values):
        return "pass"
    return "reported"


def _against_peak(
    who: str, value: float, share: float | None, limit: Mapping[str, float], found: StepMeasurement
) -> list[tuple[str, Message]]:
    if share is None:
        return []
    shown = {"who": who, "value": f"{value:.4g}", "unit": found.unit, "share": f"{100 * share:.0f}"}
    if share > facts()["above_peak"]:
        return [("wrong", message("accept.above_peak", **shown))]
    if not limit or share >= limit["ok"]:
        return []
    least = limit["ok"]
    expected = {"least": f"{least * found.peaks[who]:.4g}", "percent": f"{100 * least:.0f}"}
    if share < limit["fail"]:
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
        if below > allowed["warn"]:
            status = "fail" if below > allowed["fail"] else "warn"
            verdicts.append((status, message("accept.behind", **shown)))
    return verdicts
