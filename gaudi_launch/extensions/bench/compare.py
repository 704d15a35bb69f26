"""Compare two runs: each figure's difference, and whether it exceeds the scatter.

Scatter: 400 resamples of each run's requests (bootstrap); a difference counts when 95 % of the
resampled differences have the same sign. Rates, and runs of other tools, are one figure without
scatter: there a difference counts from 5 % on (assumed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.extensions.bench.run_file import BenchRun
from gaudi_launch.extensions.bench.statistics import RATES, TIMES, values

Verdict = Literal["better", "worse", "same"]
_RESAMPLES = 400
_MOST = 5000
_PLAIN_SHARE = 0.05
_PARTS = ("mean", "p50", "p99")


@dataclass(frozen=True)
class ComparedFigure:
    """One figure in both runs.

    ``low`` and ``high`` are the ends of the difference's 95 % range, where known.
    """

    name: str
    part: str
    before: float
    after: float
    verdict: Verdict
    low: float | None = None
    high: float | None = None

    @property
    def difference(self) -> float:
        return self.after - self.before

    @property
    def percent(self) -> float | None:
        if not self.before:
            return None
        return 100 * self.difference / self.before

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "part": self.part,
            "before": self.before,
            "after": self.after,
            "difference": round(self.difference, 6),
            "percent": mapped(lambda percent: round(percent, 2), self.percent),
            "low": self.low,
            "high": self.high,
            "verdict": self.verdict,
        }


def compare(before: BenchRun, after: BenchRun) -> list[ComparedFigure]:
    """Return a row for every figure that both runs have."""
    rows = []
    for name in RATES:
        first, second = before.summary.get(name), after.summary.get(name)
        if isinstance(first, int | float) and isinstance(second, int | float):
            rows.append(
                ComparedFigure(name, "", first, second, _plain(first, second, more_is_better=True))
            )
    for name in TIMES:
        # the delay of sending is a property of the client, not of the server
        if name == "late":
            continue
        old, new = before.summary.get(name), after.summary.get(name)
        if not isinstance(old, dict) or not isinstance(new, dict):
            continue
        scatter = _scatter(values(before.samples, name), values(after.samples, name))
        for part in _PARTS:
            if part in old and part in new:
                rows.append(_row(name, part, old[part], new[part], scatter.get(part)))
    return rows


def _row(
    name: str, part: str, before: float, after: float, ends: tuple[float, float] | None
) -> ComparedFigure:
    if ends is None:
        return ComparedFigure(
            name, part, before, after, _plain(before, after, more_is_better=False)
        )
    low, high = ends
    verdict: Verdict = "same"
    if high < 0:
        verdict = "better"
    elif low > 0:
        verdict = "worse"
    return ComparedFigure(name, part, before, after, verdict, round(low, 6), round(high, 6))


def _plain(before: float, after: float, more_is_better: bool) -> Verdict:
    if abs(after - before) < _PLAIN_SHARE * abs(before) or before == after:
        return "same"
    if (after > before) == more_is_better:
        return "better"
    return "worse"


def _scatter(before: Sequence[float], after: Sequence[float]) -> dict[str, tuple[float, float]]:
    """Return the 95 % range of after minus before, for each of _PARTS.

    The result is empty when a run has too few requests.
    """
    if len(before) < 5 or len(after) < 5:
        return {}
    import numpy

    random = numpy.random.default_rng(0)
    found: list[dict[str, Any]] = []
    for numbers in (before, after):
        array = numpy.asarray(numbers, dtype=float)
        size = min(array.size, _MOST)
        drawn = random.choice(array, size=(_RESAMPLES, size))
        p50, p99 = numpy.percentile(drawn, (50, 99), axis=1)
        found.append({"mean": drawn.mean(axis=1), "p50": p50, "p99": p99})
    ranges = {}
    for part in _PARTS:
        low, high = numpy.percentile(found[1][part] - found[0][part], (2.5, 97.5))
        ranges[part] = (float(low), float(high))
    return ranges


def doubts(before: BenchRun, after: BenchRun) -> list[Message]:
    """Return why the two runs may not be comparable."""
    found = []
    if before.workload.get("digest") != after.workload.get("digest"):
        found.append(message("measure.other_workload"))
    for name in ("tool", "model", "form"):
        first, second = before.facts.get(name), after.facts.get(name)
        if first != second:
            found.append(message("measure.other_fact", name=name, before=first, after=second))
    for run, when in ((before, "A"), (after, "B")):
        if run.facts.get("simulated"):
            found.append(message("measure.simulated", run=when))
        failed = run.summary.get("failed")
        if failed:
            found.append(
                message(
                    "measure.had_failures",
                    run=when,
                    failed=failed,
                    total=run.summary.get("requests"),
                )
            )
    return found
