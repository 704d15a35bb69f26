"""Compute figures from samples. Pure arithmetic; seconds in, seconds out.

TTFT: from the time a request had to be sent to the first piece with text. TPOT: from the first
piece to the last, by the tokens after the first. ITL: each gap between pieces. Latency: to the last
piece. The names are those of vLLM's benchmark (vllm-project/vllm vllm/benchmarks/serve.py), which
counts from the sending instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gaudi_launch.core.base.optional import value_or
from gaudi_launch.extensions.bench.run_file import Sample

PERCENTILES = (50, 90, 95, 99)
# metrics of single requests, in the order they are shown; all in seconds
TIMES = ("ttft", "tpot", "itl", "latency", "late")
RATES = ("request_rate", "output_rate", "total_rate")


def ttft(sample: Sample) -> float | None:
    if sample.first is None:
        return None
    return sample.first - sample.at


def latency(sample: Sample) -> float | None:
    if sample.last is None:
        return None
    return sample.last - sample.at


def tpot(sample: Sample) -> float | None:
    if sample.first is None or sample.last is None or sample.output < 2:
        return None
    return (sample.last - sample.first) / (sample.output - 1)


def values(samples: Sequence[Sample], name: str) -> list[float]:
    """Return all values of one of TIMES over the successful requests."""
    good = [sample for sample in samples if sample.ok]
    if name == "itl":
        return [gap for sample in good for gap in sample.gaps]
    if name == "late":
        return [sample.sent - sample.at for sample in good]
    measure = {"ttft": ttft, "tpot": tpot, "latency": latency}[name]
    return [value for sample in good if (value := measure(sample)) is not None]


def spread(numbers: Sequence[float]) -> dict[str, float] | None:
    """Return mean, percentiles (linear between neighbours) and maximum.

    Return None without values.
    """
    if not numbers:
        return None
    import numpy

    array = numpy.asarray(numbers, dtype=float)
    cuts = numpy.percentile(array, PERCENTILES)
    found = {"mean": float(array.mean())}
    found |= {f"p{percent}": float(cut) for percent, cut in zip(PERCENTILES, cuts, strict=True)}
    found["max"] = float(array.max())
    return {name: round(number, 6) for name, number in found.items()}


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return every figure of a run.

    Rates are over the time from the first arrival to the last answer.
    """
    good = [sample for sample in samples if sample.ok]
    begin = min((sample.at for sample in samples), default=0.0)
    end = max((value_or(sample.last, sample.sent) for sample in samples), default=0.0)
    seconds = end - begin
    made = sum(sample.output for sample in good)
    read = sum(value_or(sample.input, sample.wanted_input) for sample in good)
    found: dict[str, Any] = {
        "requests": len(samples),
        "completed": len(good),
        "failed": len(samples) - len(good),
        "seconds": round(seconds, 6),
        "input_tokens": read,
        "output_tokens": made,
    }
    for name, count in (
        ("request_rate", len(good)),
        ("output_rate", made),
        ("total_rate", made + read),
    ):
        found[name] = round(count / seconds, 6) if seconds > 0 else None
    for name in TIMES:
        found[name] = spread(values(samples, name))
    return found


def errors(samples: Sequence[Sample]) -> list[tuple[str, int, str]]:
    """Return (kind, count, example) of the failures, the most frequent first."""
    counts = Counter(sample.error for sample in samples if not sample.ok)
    example = {sample.error: sample.detail for sample in reversed(samples) if not sample.ok}
    return [(what, count, example[what]) for what, count in counts.most_common()]


def over_time(samples: Sequence[Sample], bins: int) -> tuple[float, list[float]]:
    """Return output tokens per second in ``bins`` equal intervals of the run.

    The first number is an interval's seconds. A request's tokens are placed where its pieces came,
    evenly where the server sent several in one.
    """
    good = [
        sample
        for sample in samples
        if sample.ok and sample.first is not None and sample.last is not None
    ]
    end = max((sample.last or 0.0 for sample in good), default=0.0)
    if end <= 0 or bins < 1:
        return 0.0, []
    width = end / bins
    totals = [0.0] * bins
    for sample in good:
        moments = [sample.first or 0.0]
        for gap in sample.gaps:
            moments.append(moments[-1] + gap)
        share = sample.output / len(moments)
        for moment in moments:
            totals[min(bins - 1, max(0, int(moment / width)))] += share
    return width, [total / width for total in totals]
