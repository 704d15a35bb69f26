"""A predicted speed as one line, and as JSON."""

from __future__ import annotations

from typing import Any

from gaudi_launch.core.base.messages import text
from gaudi_launch.core.predict.evidence import Band, Evidence
from gaudi_launch.core.predict.load import Load
from gaudi_launch.core.predict.simulate import Latency, Outcome

# percentiles of latencies
_SHOWN = (50, 95, 99)


def load_json(load: Load) -> dict[str, Any]:
    """Return a load by the names of its options."""
    kind = "rate" if load.rate else "concurrency"
    if load.batch:
        kind = "static"
    return {
        "kind": kind,
        "input_tokens": round(load.mean_input, 2),
        "output_tokens": round(load.mean_output, 2),
        "input_range": list(load.input_range),
        "output_range": list(load.output_range),
        "sequences": load.batch or load.clients or None,
        "rate": load.rate or None,
        "recorded": load.recorded,
    }


def latency_json(made: Outcome, latency: Latency) -> dict[str, Any]:
    """Return a latency's mean and percentiles, each with its range."""
    found: dict[str, Any] = made.time(latency).to_json()
    for percentile in _SHOWN:
        found[f"p{percentile}"] = made.time(latency, percentile).to_json()
    return found


def _times(band: Band, factor: float) -> Band:
    return Band(band.low * factor, band.expected * factor, band.high * factor)


def speed_json(made: Outcome | None) -> dict[str, Any] | None:
    """Return the prediction as ``plan --json`` has it."""
    if made is None:
        return None
    return {**figures_json(made), "near": made.evidence.near}


def figures_json(made: Outcome) -> dict[str, Any]:
    """Return the load, and its latencies and throughput.

    In seconds, output tokens per second, requests per second. Without a percentile a latency is the
    mean.
    """
    return {
        "load": load_json(made.load),
        "ttft_seconds": latency_json(made, made.ttft),
        "tpot_seconds": latency_json(made, made.tpot),
        "throughput": {
            "output_tokens_per_second": made.throughput.to_json(),
            "requests_per_second": _times(made.throughput, 1 / made.load.mean_output).to_json(),
        },
        "limited_by": made.bound,
    }


def summary(made: Outcome) -> str:
    """Return the prediction in one line, as ``plan`` shows it."""
    evidence = nearness(made.evidence)
    if made.evidence.learned:
        evidence = text("estimate.learned", version=made.evidence.learned)
    return text(
        "estimate.line",
        sequences=f"{made.inside:.0f}",
        input=lengths(made.load.input_range),
        output=lengths(made.load.output_range),
        throughput=_range(made.throughput),
        ttft=_range(made.time(made.ttft), 1000),
        tpot=_range(made.time(made.tpot), 1000),
        evidence=evidence,
    )


def lengths(found: tuple[int, int]) -> str:
    """Return a range of tokens, one number where both are equal."""
    low, high = found
    return str(low) if low == high else f"{low}-{high}"


def _range(band: Band, factor: float = 1.0) -> str:
    low, expected, high = (number(value * factor) for value in (band.low, band.expected, band.high))
    return f"{expected} ({low} - {high})"


def number(value: float) -> str:
    """Return a figure with three digits, from 100 on without decimals."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def nearness(evidence: Evidence) -> str:
    """Return how far measured figures are from the load."""
    if not evidence.near:
        return text("estimate.far")
    return text("estimate.near", typical=f"{100 * (evidence.typical - 1):.0f}")
