"""Requests as one replica receives them: lengths, and arrivals at one per second.

A fleet distributes requests to replicas at random. Poisson arrivals stay Poisson when they are
split so, and many independent users come close to it whatever each does; so that is the default. A
trace's own arrivals, sped up or slowed down, keep its bursts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from gaudi_launch.buckets.shared_prefixes import SharedPrefix

TrafficRequest = tuple[float, int, int]
"""(arrival seconds, input tokens, output tokens)."""

# token steps that are simulated for a replica, about a third of a second
_STEPS = 1_000_000
_FEWEST, _MOST = 500, 40_000
# requests for a replica that is not close to its maximum
_USUAL = 3000
# A queue forgets its past after about 1 / (1 - share)^2 services (the relaxation time of M/M/1,
# M/D/1): an average over a run needs a hundred times that and more, and a shorter run from empty
# shows less waiting than there is
_FORGETTING = 400
_MINUTE = 60.0


@dataclass(frozen=True)
class Traffic:
    """Requests sorted by time, one per second on average; ``mean_output`` in tokens.

    ``shared``: the beginning of each prompt that an earlier request had; empty where unknown.
    ``cached``: the tokens of them that a prefix cache of some size still has; empty without one.
    """

    requests: tuple[TrafficRequest, ...]
    shared: tuple[SharedPrefix, ...] = field(default=(), repr=False)
    cached: tuple[int, ...] = field(default=(), repr=False)

    def with_cache(self, tokens: int) -> Traffic:
        """Return the traffic of a replica with a prefix cache of ``tokens`` tokens.

        Assumed: requests with a common beginning reach the same replica, and the cache forgets what
        was used longest ago.
        """
        if not self.shared:
            return self
        kept = tuple(each.tokens if each.distance <= tokens else 0 for each in self.shared)
        return replace(self, cached=kept)

    def part(self, share: float, inside: float) -> Traffic:
        """Return the first requests: as many as a replica needs at this share.

        No more than can be simulated in reasonable time with ``inside`` requests in the engine.
        """
        needed = max(_USUAL, _FORGETTING / (1 - share) ** 2)
        able = max(_FEWEST, _STEPS * max(inside, 1.0) / max(self.mean_output, 1.0))
        count = int(min(len(self.requests), needed, able))
        return self.first(count)

    def first(self, count: int) -> Traffic:
        """Return the first ``count`` requests, one per second on average."""
        if count >= len(self.requests):
            return self
        return Traffic(_paced(self.requests[:count]), self.shared[:count], self.cached[:count])

    @cached_property
    def mean_cached(self) -> float:
        """Return the mean tokens of a prompt that the prefix cache has."""
        return sum(self.cached) / len(self.requests)

    @cached_property
    def input_range(self) -> tuple[int, int]:
        """Return the shortest and the longest prompt in tokens."""
        found = [tokens for _, tokens, _ in self.requests]
        return min(found), max(found)

    @cached_property
    def output_range(self) -> tuple[int, int]:
        """Return the shortest and the longest answer in tokens."""
        found = [output for _, _, output in self.requests]
        return min(found), max(found)

    @cached_property
    def mean_input(self) -> float:
        return sum(tokens for _, tokens, _ in self.requests) / len(self.requests)

    @cached_property
    def mean_output(self) -> float:
        return sum(output for _, _, output in self.requests) / len(self.requests)


def from_trace(
    trace: Sequence[TrafficRequest],
    own_arrivals: bool = False,
    seed: int = 0,
    *,
    shared: Sequence[SharedPrefix] = (),
) -> Traffic:
    """Return lengths (and, if requested, arrivals) of past requests.

    ``shared`` are their common beginnings; empty where unknown.
    """
    if own_arrivals:
        return Traffic(_paced(trace[:_MOST]), tuple(shared[:_MOST]))
    chance = random.Random(seed)
    drawn = [chance.randrange(len(trace)) for _ in range(_MOST)]
    made = _poisson([(trace[at][1], trace[at][2]) for at in drawn], chance)
    if not shared:
        return made
    return replace(made, shared=tuple(shared[at] for at in drawn))


def from_ranges(inputs: tuple[int, int], outputs: tuple[int, int], seed: int = 0) -> Traffic:
    """Return lengths within ranges, half logarithmic and half uniform.

    The planner's prior is the same.
    """
    chance = random.Random(seed)

    def draw(low: int, high: int) -> int:
        if chance.random() < 0.5:
            return min(
                high, max(low, round(math.exp(chance.uniform(math.log(low), math.log(high)))))
            )
        return chance.randint(low, high)

    return _poisson([(draw(*inputs), draw(*outputs)) for _ in range(_MOST)], chance)


def _poisson(lengths: Sequence[tuple[int, int]], chance: random.Random) -> Traffic:
    now, requests = 0.0, []
    for tokens, output in lengths:
        now += chance.expovariate(1.0)
        requests.append((now, tokens, output))
    return Traffic(_paced(requests))


def _paced(requests: Sequence[TrafficRequest]) -> tuple[TrafficRequest, ...]:
    """Return times from 0 on, one per second on average, so that a rate is exact."""
    start = requests[0][0]
    span = requests[-1][0] - start
    pace = (len(requests) - 1) / span if span > 0 else 1.0
    return tuple(((time - start) * pace, tokens, output) for time, tokens, output in requests)


def mean_rate(trace: Sequence[TrafficRequest]) -> float | None:
    """Return requests per second over the complete trace; None without a span."""
    if len(trace) < 2 or trace[-1][0] <= trace[0][0]:
        return None
    return (len(trace) - 1) / (trace[-1][0] - trace[0][0])


def busiest_minute(trace: Sequence[TrafficRequest]) -> float | None:
    """Return requests per second in the busiest minute.

    Return None where the trace is not longer than one.
    """
    if not trace or trace[-1][0] - trace[0][0] <= _MINUTE:
        return None
    most, first = 0, 0
    for last, (time, _, _) in enumerate(trace):
        while trace[first][0] < time - _MINUTE:
            first += 1
        most = max(most, last - first + 1)
    return most / _MINUTE
