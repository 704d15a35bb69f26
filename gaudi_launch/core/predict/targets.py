"""Latencies that a load must stay within."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.predict.simulate import Latency, Outcome


@dataclass(frozen=True)
class Targets:
    """Seconds that ``percentile`` % of the requests must stay within.

    None: no target.
    """

    ttft: float | None
    tpot: float | None
    percentile: float = 95.0
    e2e: float | None = None

    def times(self, factor: float) -> Targets:
        """Return targets of ``factor`` times as much time."""

        def of(seconds: float | None) -> float | None:
            return mapped(lambda one: one * factor, seconds)

        return replace(self, ttft=of(self.ttft), tpot=of(self.tpot), e2e=of(self.e2e))

    def missed(self, outcome: Outcome | None) -> tuple[str, ...]:
        """Return the names of the targets that are not met: ttft, tpot, e2e.

        One that a seed of the simulation misses is not safe, and therefore not met.
        """
        return tuple(name for name, most, worst in self._pairs(outcome) if worst > most)

    def crossing(self, low: Outcome | None, high: Outcome | None) -> float:
        """Return the share of the way between two loads at which a target is reached."""
        found = 1.0
        for (_, most, before), (_, _, after) in zip(
            self._pairs(low), self._pairs(high), strict=True
        ):
            if after > most:
                found = min(found, max(0.0, (most - before) / (after - before)))
        return found

    def _pairs(self, outcome: Outcome | None) -> Iterator[tuple[str, float, float]]:
        """Yield the name of each target, its seconds, and those of the worst seed."""
        if outcome is None:
            return
        kinds: dict[str, tuple[float | None, Latency]] = {
            "ttft": (self.ttft, outcome.ttft),
            "tpot": (self.tpot, outcome.tpot),
            "e2e": (self.e2e, outcome.e2e),
        }
        for name, (most, latency) in kinds.items():
            if most is not None:
                yield name, most, latency.between(self.percentile)[1]
