"""Requests as one engine receives them: lengths and arrivals. Pure.

A fleet distributes requests to its replicas at random. Poisson arrivals stay Poisson when they are
split so, and many independent users come close to it whatever each does; so that is the default. A
trace's own arrivals, sped up or slowed down, keep its bursts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

LoadRequest = tuple[float, int, int]
"""(arrival seconds, input tokens, output tokens)."""

# lengths of a range
_DRAWN = 8192
# of a sequence that fills four dimensions evenly: powers of the root of x**5 = x + 1 (Roberts 2018)
_STEPS = tuple(1.1673039782614187**-power for power in range(1, 5))
_MINUTE = 60.0


class SharedPrefix(NamedTuple):
    """The tokens at the beginning of a prompt that an earlier request had.

    ``distance``: tokens that other requests brought since then; a smaller cache has lost them.
    """

    tokens: int
    distance: int


@dataclass(frozen=True, eq=False)
class CachedRequests:
    """Requests sorted by time, with a prefix cache.

    ``cached`` are the tokens of each prompt that it has; empty for none. Only an engine
    with mixed steps counts them.
    """

    requests: Sequence[LoadRequest]
    cached: Sequence[int] = ()


@dataclass(frozen=True)
class Load:
    """Requests, and how they reach one engine.

    One of three is given: ``rate`` requests per second, ``clients`` that each wait for an answer
    before the next request, or a ``batch`` of as many requests that are computed together, without
    a server. ``recorded``: the requests are those of a trace, come at its own times, and there are
    no others; else they come at random, and there are more with the same lengths. ``shared``: the
    beginning of each prompt that an earlier request had; empty where unknown. ``cached``: the
    tokens of them that a prefix cache of some size still has; empty without one.
    """

    requests: tuple[LoadRequest, ...]
    rate: float = 0.0
    clients: int = 0
    batch: int = 0
    recorded: bool = False
    shared: tuple[SharedPrefix, ...] = field(default=(), repr=False)
    cached: tuple[int, ...] = field(default=(), repr=False)
    # what was sent before, by number and seed; `replace` begins without it
    _known: dict[tuple[int | None, int], CachedRequests] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    def at_rate(self, rate: float) -> Load:
        """Return the requests at ``rate`` per second."""
        return replace(self, rate=rate, clients=0, batch=0)._sent_as(self)

    def of_clients(self, clients: int) -> Load:
        """Return the requests of ``clients`` that wait for their answers."""
        return replace(self, rate=0.0, clients=clients, batch=0)._sent_as(self)

    def _sent_as(self, other: Load) -> Load:
        """Return this load with what ``other``, which has the same requests, draws."""
        object.__setattr__(self, "_known", other._known)
        return self

    def with_cache(self, tokens: int) -> Load:
        """Return the load of an engine with a prefix cache of ``tokens`` tokens.

        0: without one.

        Assumed: requests with a common beginning reach the same replica, and the cache forgets what
        was used longest ago.
        """
        if not (self.shared and tokens):
            return self
        kept = tuple(each.tokens if each.distance <= tokens else 0 for each in self.shared)
        return replace(self, cached=kept)

    def sent(self, count: int | None = None, seed: int = 0) -> CachedRequests:
        """Return ``count`` requests to simulate, one per second on average.

        None: all that there are. Recorded ones come at their own times; some of them are those of a
        busy time (`_busy`), faster than one per second. Drawn ones are complete copies of all
        lengths in random order, at random times, so that another seed has the same lengths.
        """
        if (count, seed) not in self._known:
            self._known[count, seed] = self._sent(count, seed)
        return self._known[count, seed]

    def _sent(self, count: int | None, seed: int) -> CachedRequests:
        known = len(self.requests)
        if self.recorded:
            paced = _paced(self.requests)
            part = _busy(paced, min(count or known, known))
            start = paced[part][0][0]
            kept = [(time - start, tokens, output) for time, tokens, output in paced[part]]
            return CachedRequests(kept, self.cached[part])
        chance = random.Random(seed)
        order: list[int] = []
        for _ in range(-(-(count or known) // known)):
            copy = list(range(known))
            chance.shuffle(copy)
            order += copy
        chosen = order[:count]
        requests = _poisson([self.requests[at][1:] for at in chosen], chance)
        return CachedRequests(requests, tuple(self.cached[at] for at in chosen if self.cached))

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
    trace: Sequence[LoadRequest],
    own_arrivals: bool = False,
    *,
    shared: Sequence[SharedPrefix] = (),
) -> Load:
    """Return lengths (and, if requested, arrivals) of past requests.

    ``shared`` are their common beginnings; empty where unknown.
    """
    return Load(tuple(trace), recorded=own_arrivals, shared=tuple(shared))


@lru_cache(maxsize=8)
def from_ranges(inputs: tuple[int, int], outputs: tuple[int, int], count: int = _DRAWN) -> Load:
    """Return ``count`` lengths within ranges, half logarithmic and half uniform.

    The planner's prior is the same. They are spread evenly over it (an additive recurrence), so
    that a few thousand have its percentiles.
    """

    def length(low: int, high: int, kind: float, part: float) -> int:
        if kind < 0.5:
            even = math.log(low) + part * (math.log(high) - math.log(low))
            return min(high, max(low, round(math.exp(even))))
        return min(high, low + int(part * (high - low + 1)))

    found: list[LoadRequest] = []
    for number in range(1, count + 1):
        first, second, third, fourth = (number * step % 1.0 for step in _STEPS)
        found.append((0.0, length(*inputs, first, second), length(*outputs, third, fourth)))
    return Load(tuple(found))


def _busy(requests: Sequence[LoadRequest], count: int) -> slice:
    """Return ``count`` requests in a row, as fast as one in twenty sees them.

    A percentile of 95 % of a trace with bursts is that of its bursts.
    """
    spans = [
        (requests[first + count - 1][0] - requests[first][0], first)
        for first in range(0, len(requests) - count + 1, max(1, count // 8))
    ]
    spans.sort()
    _, first = spans[len(spans) // 20]
    return slice(first, first + count)


def _poisson(lengths: Sequence[tuple[int, int]], chance: random.Random) -> tuple[LoadRequest, ...]:
    now, requests = 0.0, []
    for tokens, output in lengths:
        now += chance.expovariate(1.0)
        requests.append((now, tokens, output))
    return _paced(requests)


def _paced(requests: Sequence[LoadRequest]) -> tuple[LoadRequest, ...]:
    """Return times from 0 on, one per second on average, so that a rate is exact."""
    start = requests[0][0]
    span = requests[-1][0] - start
    pace = (len(requests) - 1) / span if span > 0 else 1.0
    return tuple(((time - start) * pace, tokens, output) for time, tokens, output in requests)


def mean_rate(trace: Sequence[LoadRequest]) -> float | None:
    """Return requests per second over the complete trace; None without a span."""
    if len(trace) < 2 or trace[-1][0] <= trace[0][0]:
        return None
    return (len(trace) - 1) / (trace[-1][0] - trace[0][0])


def busiest_minute(trace: Sequence[LoadRequest]) -> float | None:
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
