"""Latencies that a load must stay within."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gaudi_launch.core.predict.simulate import Outcome


@dataclass(frozen=True)
class Targets:
    """Seconds that ``percentile`` % of the requests must stay within.

    None: no target.
    """

    ttft: float | None
    tpot: float | None
    percentile: float = 95.0
    e2e: float | None = None

    @property
    def given(self) -> dict[str, float]:
        """Return the seconds of each target by its name: ttft, tpot, e2e."""
        named = {"ttft": self.ttft, "tpot": self.tpot, "e2e": self.e2e}
        return {name: seconds for name, seconds in named.items() if seconds is not None}

    def times(self, factor: float) -> Targets:
        """Return targets of ``factor`` times as much time."""
        return replace(self, **{name: most * factor for name, most in self.given.items()})

    def shares(self, served: object) -> dict[str, float]:
        """Return how many times its target each latency of a record is, by name."""
        return {name: getattr(served, name) / most for name, most in self.given.items()}

    def missed(self, outcome: Outcome | None) -> tuple[str, ...]:
        """Return the names of the targets that are not met: ttft, tpot, e2e.

        One that a seed of the simulation misses is not safe, and therefore not met.
        """
        return tuple(name for name, most, worst in self._pairs(outcome) if worst > most)

    def crossing(self, low: Outcome | None, high: Outcome | None) -> float:
        """Return the share of the way between two loads at which a target is reached."""
        pairs = zip(self._pairs(low), self._pairs(high), strict=True)
        shares = [
            max(0.0, (most - before) / (after - before))
            for (_, most, before), (_, _, after) in pairs
            if after > most
        ]
        return min([1.0, *shares])

    def _pairs(self, outcome: Outcome | None) -> Iterator[tuple[str, float, float]]:
        """Yield the name of each target, its seconds, and those of the worst seed."""
        if outcome is None:
            return
        for name, most in self.given.items():
            yield name, most, getattr(outcome, name).between(self.percentile)[1]
