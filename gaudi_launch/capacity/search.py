"""Replicas, cards and nodes for a rate of requests within latency targets. Pure.

One replica is simulated at growing load; a fleet is a number of equal replicas, so a fleet of
10,000 nodes costs no more than one. Latency is read from the simulated loads along straight lines,
never falling with load, so more requests or a tighter target can never need fewer replicas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.performance.limits import EngineLimits
from gaudi_launch.performance.simulator import Times, simulate_times
from gaudi_launch.performance.step_time import StepTime

# fractions of a replica's maximum. Close to the maximum a queue grows without end, which no run of
# some ten thousand requests would show; the last fraction is therefore the ceiling
SHARES = (0.02, *(step / 20 for step in range(1, 19)))
CEILING = SHARES[-1]
# the first tenth of the requests meet an empty engine
_SETTLING = 0.1


@dataclass(frozen=True)
class Targets:
    """Seconds that ``percentile`` % of the requests must stay within.

    None: not requested.
    """

    ttft: float | None
    tpot: float | None
    percentile: float = 95.0


@dataclass(frozen=True)
class LoadPoint:
    """One replica under one load.

    ``rate`` in requests per second, ``share`` of its maximum, and percentiles of time to first
    token and time per further token, in seconds; ``tokens`` are output tokens per second,
    ``inside`` is the mean number of requests in the engine.
    """

    rate: float
    share: float
    ttft: float
    tpot: float
    tokens: float
    inside: float


@dataclass(frozen=True)
class Curve:
    """One replica from idle to `CEILING`.

    ``most``: its maximum in requests per second; ``refused``: the share of requests that it never
    accepts (longer than it allows).
    """

    loads: tuple[LoadPoint, ...]
    most: float
    refused: float


@dataclass(frozen=True)
class Fleet:
    """A number of replicas, and the latencies of each request (seconds)."""

    replicas: int
    cards: int
    nodes: int
    rate: float
    ttft: float
    tpot: float


def simulate_curve(traffic: Traffic, limits: EngineLimits, cost: StepTime, percentile: float) -> Curve | None:
    """Return one replica at each of `SHARES`.

    Return None when it accepts none of the requests.
    """
    most = most_requests(traffic, limits, cost)
    if most is None:
        return None
    loads: list[LoadPoint] = []
    for share in SHARES:
        # at a higher load at least as many requests are inside
        part = traffic.part(share, loads[-1].inside if loads else 0.0)
        loads.append(_load(part, limits, cost, percentile, share, most))
    refused = sum(1 for _, tokens, _ in traffic.requests if not _taken(tokens, limits)) / len(traffic.requests)
    return Curve(tuple(loads), most, refused)


def _taken(tokens: int, limits: EngineLimits) -> bool:
    longest = min(limits.max_model_len - 1, limits.longest_query, limits.num_blocks * limits.block_size - 1)
    return tokens <= longest


def most_requests(traffic: Traffic, limits: EngineLimits, cost: StepTime) -> float | None:
    """Return the requests per second of an engine that always has more waiting.

    Measured while it is full. Return None when it accepts none.
    """
    import numpy as np

    full = traffic.part(0.0, limits.max_num_seqs)
    times = simulate_times(full.requests, limits, cost, concurrency=limits.max_num_seqs)
    done = np.sort(times.done[~np.isnan(times.done)])
    if not len(done):
        return None
    # filling and emptying do not show its rate; very short runs have nothing else
    first, last = len(done) // 5, len(done) - 1 - len(done) // 5
    if last > first and done[last] > done[first]:
        return float((last - first) / (done[last] - done[first]))
    return float(len(done) / max(done[-1], 1e-9))


def _load(
    traffic: Traffic, limits: EngineLimits, cost: StepTime, percentile: float, share: float, most: float
) -> LoadPoint:
    import numpy as np

    rate = share * most
    times = simulate_times(traffic.requests, limits, cost, rate=rate)
    settled = slice(int(len(traffic.requests) * _SETTLING), None)
    whole = Times(times.came[settled], times.first[settled], times.done[settled], times.output[settled])
    waited = whole.first - whole.came
    several = whole.output > 1
    each = (whole.done - whole.first)[several] / (whole.output[several] - 1)
    stay = whole.done - whole.came
    # rate x mean stay is the mean number inside (Little)
    return LoadPoint(
        rate=rate,
        share=share,
        ttft=_percentile(waited, percentile),
        tpot=_percentile(each, percentile),
        tokens=rate * float(np.mean(times.output)),
        inside=rate * float(np.nanmean(stay)) if not np.isnan(stay).all() else 0.0,
    )


def _percentile(values: object, percentile: float) -> float:
    import numpy as np

    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    # the smallest value that this number of requests stay within, never an interpolated one
    return float(np.percentile(known, percentile, method="higher")) if len(known) else 0.0


def _rising(values: Sequence[float]) -> list[float]:
    """Return values that never fall: a latency at some load is kept at a higher one."""
    found: list[float] = []
    for value in values:
        found.append(max(value, found[-1]) if found else value)
    return found


def _highest(rates: Sequence[float], values: Sequence[float], target: float | None) -> float | None:
    """Return the highest rate whose value is within the target; None when no load is."""
    rising = _rising(values)
    if target is None or rising[-1] <= target:
        return rates[-1]
    if rising[0] > target:
        return None
    over = next(at for at, value in enumerate(rising) if value > target)
    low, high = rising[over - 1], rising[over]
    return rates[over - 1] + (rates[over] - rates[over - 1]) * (target - low) / (high - low)


def rate_within(curve: Curve, targets: Targets) -> float | None:
    """Return the requests per second that one replica serves within the targets.

    Return None when not even an idle one does.
    """
    rates = [load.rate for load in curve.loads]
    found = (
        _highest(rates, [load.ttft for load in curve.loads], targets.ttft),
        _highest(rates, [load.tpot for load in curve.loads], targets.tpot),
    )
    return None if None in found else min(rate for rate in found if rate is not None)


def latency_at(curve: Curve, rate: float) -> tuple[float, float]:
    """Return (time to first token, time per token) of one replica at ``rate``.

    The result is interpolated between the simulated loads.
    """
    rates = [load.rate for load in curve.loads]

    def read(values: list[float]) -> float:
        rising = _rising(values)
        for at in range(1, len(rates)):
            if rate <= rates[at]:
                part = max(0.0, (rate - rates[at - 1]) / (rates[at] - rates[at - 1]))
                return rising[at - 1] + part * (rising[at] - rising[at - 1])
        return rising[-1]

    return read([load.ttft for load in curve.loads]), read([load.tpot for load in curve.loads])


def nodes_for(replicas: int, cards: int, cards_per_node: int) -> int:
    """Return the number of nodes for this number of replicas of ``cards`` cards.

    A replica shares no node with part of itself elsewhere unless it is larger than one.

    >>> [nodes_for(5, 2, 8), nodes_for(3, 8, 8), nodes_for(3, 16, 8), nodes_for(3, 3, 8)]
    [2, 3, 6, 2]
    """
    if cards > cards_per_node:
        return replicas * math.ceil(cards / cards_per_node)
    return math.ceil(replicas / (cards_per_node // cards))


def replicas_on(nodes: int, cards: int, cards_per_node: int) -> int:
    """Return the number of replicas of ``cards`` cards on this number of nodes."""
    if cards > cards_per_node:
        return nodes // math.ceil(cards / cards_per_node)
    return nodes * (cards_per_node // cards)


def fleet_for(curve: Curve, targets: Targets, rate: float, cards: int, cards_per_node: int) -> Fleet | None:
    """Return the smallest fleet for ``rate`` requests per second.

    Return None when no number of replicas meets the targets.
    """
    each = rate_within(curve, targets)
    if each is None:
        return None
    # an integer that rounding made slightly larger is still that integer
    replicas = max(1, math.ceil(rate / each - 1e-9))
    ttft, tpot = latency_at(curve, rate / replicas)
    return Fleet(replicas, replicas * cards, nodes_for(replicas, cards, cards_per_node), each, ttft, tpot)
