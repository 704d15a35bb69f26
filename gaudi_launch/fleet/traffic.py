"""Requests as one replica sees them: lengths of a trace or of ranges, arrivals at a mean of one a second.

A fleet hands each request to one replica at random. Poisson arrivals stay Poisson when they are split so, and many
independent users come close to it whatever each does; so that is the default. A trace's own arrivals, sped up or
slowed down, keep its bursts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

Request = tuple[float, int, int]
"""(arrival seconds, input tokens, output tokens)."""

# token steps that a quiet replica may simulate, about a third of a second
_STEPS = 1_000_000
_FEWEST, _MOST = 500, 3000
_MINUTE = 60.0


@dataclass(frozen=True)
class Traffic:
    """Requests sorted by time, one a second on average; ``mean_output`` in tokens."""

    requests: tuple[Request, ...]

    @property
    def mean_output(self) -> float:
        return sum(output for _, _, output in self.requests) / len(self.requests)


def from_trace(trace: Sequence[Request], own_arrivals: bool = False, seed: int = 0) -> Traffic:
    """Lengths (and, if asked for, arrivals) of past requests."""
    chance = random.Random(seed)
    lengths = [(tokens, output) for _, tokens, output in trace]
    count = _count(sum(output for _, output in lengths) / len(lengths))
    if own_arrivals:
        part = trace[:count]
        span = part[-1][0] - part[0][0]
        pace = len(part) / span if span > 0 else 1.0
        return Traffic(tuple(((time - part[0][0]) * pace, tokens, output) for time, tokens, output in part))
    return _poisson([lengths[chance.randrange(len(lengths))] for _ in range(count)], chance)


def from_ranges(inputs: tuple[int, int], outputs: tuple[int, int], seed: int = 0) -> Traffic:
    """Lengths within ranges, half of them even over the logarithm and half even (as the planner's prior)."""
    chance = random.Random(seed)

    def draw(low: int, high: int) -> int:
        if chance.random() < 0.5:
            return min(high, max(low, round(math.exp(chance.uniform(math.log(low), math.log(high))))))
        return chance.randint(low, high)

    drawn = [(draw(*inputs), draw(*outputs)) for _ in range(_MOST)]
    return _poisson(drawn[: _count(sum(output for _, output in drawn) / len(drawn))], chance)


def _poisson(lengths: Sequence[tuple[int, int]], chance: random.Random) -> Traffic:
    now, requests = 0.0, []
    for tokens, output in lengths:
        now += chance.expovariate(1.0)
        requests.append((now, tokens, output))
    # the draw's own mean is not quite one second; a rate must mean what it says
    pace = len(requests) / now
    return Traffic(tuple((time * pace, tokens, output) for time, tokens, output in requests))


def _count(mean_output: float) -> int:
    return int(min(_MOST, max(_FEWEST, _STEPS / max(mean_output, 1.0))))


def mean_rate(trace: Sequence[Request]) -> float | None:
    """Requests a second over the whole trace; None where it has no span."""
    span = trace[-1][0] - trace[0][0] if len(trace) > 1 else 0.0
    return (len(trace) - 1) / span if span > 0 else None


def busiest_minute(trace: Sequence[Request]) -> float | None:
    """Requests a second in the busiest minute; None where the trace is not longer than one."""
    if not trace or trace[-1][0] - trace[0][0] <= _MINUTE:
        return None
    most, first = 0, 0
    for last, (time, _, _) in enumerate(trace):
        while trace[first][0] < time - _MINUTE:
            first += 1
        most = max(most, last - first + 1)
    return most / _MINUTE
