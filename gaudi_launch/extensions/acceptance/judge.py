"""The verdict on a measurement, by the limits of profiles/acceptance.yaml. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.extensions.acceptance.records import (
    Step,
    StepMeasurement,
    StepResult,
    facts,
    figure,
)

_WORST = ("wrong", "fail", "warn")


def judge(step: Step, product: str, found: StepMeasurement) -> StepResult:
    """Return a step's result: each figure against its limit and the others."""
    limit = step.limit.get("products", {}).get(product, {})
    peaks = {who: peak for who, peak in found.peaks.items() if who in found.values}
    shares = {who: found.values[who] / peak for who, peak in peaks.items()}
    verdicts = [*_against_peak(step, limit, found, shares), *found.troubles]
    slowest, spread = "", None
    # cards by their rate; groups, which may have different sizes, by their share of the peak
    rates = shares if step.limit.get("peak") == "group" else found.values
    if len(rates) > 1 and found.peaks:
        slowest, most = min(rates, key=lambda who: rates[who]), max(rates.values())
        spread = (most - rates[slowest]) / most if most > 0 else None
        verdicts += _against_others(step, found, rates)
    verdicts.sort(key=lambda each: _WORST.index(each[0]))
    # a rate needs a limit to pass
    status = "reported" if found.values and not limit else "pass"
    return StepResult(
        step.name,
        verdicts[0][0] if verdicts else status,
        tuple(why for _, why in verdicts),
        found.values,
        step.unit,
        shares,
        limit.get("ok"),
        slowest,
        spread,
        step.limit.get("source", ""),
        details=found.details,
    )


def _against_peak(
    step: Step, limit: Mapping[str, float], found: StepMeasurement, shares: Mapping[str, float]
) -> Iterator[tuple[str, Message]]:
    for who, share in shares.items():
        shown = {"who": who, "value": figure(found.values[who]), "unit": step.unit}
        shown["share"] = f"{100 * share:.0f}"
        if share > facts()["above_peak"]:
            yield "wrong", message("accept.above_peak", **shown)
        elif limit and share < limit["ok"]:
            shown["least"] = figure(limit["ok"] * found.peaks[who])
            shown["percent"] = f"{100 * limit['ok']:.0f}"
            too_low = share < limit["fail"]
            id = "accept.too_low" if too_low else "accept.low"
            yield "fail" if too_low else "warn", message(id, **shown)


def _against_others(
    step: Step, found: StepMeasurement, rates: Mapping[str, float]
) -> Iterator[tuple[str, Message]]:
    """Yield what is slower than the others by more than the accepted spread."""
    middle, allowed = median(rates.values()), facts()["spread"]
    for who, rate in rates.items():
        below = 1 - rate / middle if middle else 0.0
        if below > allowed["warn"]:
            shown = {"value": figure(found.values[who]), "unit": step.unit}
            why = message("accept.behind", who=who, below=f"{100 * below:.0f}", **shown)
            yield "fail" if below > allowed["fail"] else "warn", why
