"""Replicas, cards and nodes for a rate of requests within latency targets. Pure.

One replica is simulated at growing load; a fleet is a number of equal replicas, so a fleet of
10,000 nodes costs no more than one. Latency is read from the simulated loads along straight lines,
never falling with load, so more requests or a tighter target can never need fewer replicas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.optional import mapped
from gaudi_launch.performance.limits import EngineLimits
from gaudi_launch.performance.simulator import CachedRequests, Times, simulate_cached
from gaudi_launch.performance.step_time import StepTime

# fractions of a replica's maximum. Close to the maximum a queue grows without end, which no run of
# some ten thousand requests would show; the last fraction is therefore the ceiling
SHARES = (0.02, *(step / 20 for step in range(1, 19)))
CEILING = SHARES[-1]
# loads and requests that show which of several batches carries most
QUICK_SHARES, _QUICK_REQUESTS = (0.3, 0.55, 0.75, CEILING), 700
# more clients than requests that run only wait
_CLIENT_STEPS = (0.75, 1.0)
# decode steps and requests of one client that show its latencies
_SETTLED_STEPS, _FEWEST_SETTLED = 300_000, 100
_FEWEST_WAVES = 4
# the first tenth of the requests meet an empty engine
_SETTLING = 0.1


# the share of each target that is kept free: other arrivals of one traffic move a percentile by
# about this much (measured with other seeds of the simulator, scripts/acceptance/recommend.py)
RESERVE = 0.02


@dataclass(frozen=True)
class Targets:
    """Seconds that ``percentile`` % of the requests must stay within.

    None: no target.
    """

    ttft: float | None
    tpot: float | None
    percentile: float = 95.0
    e2e: float | None = None

    def with_reserve(self) -> Targets:
        """Return targets that other arrivals of the same traffic do not break."""
        return replace(
            self, ttft=_reserved(self.ttft), tpot=_reserved(self.tpot), e2e=_reserved(self.e2e)
        )


def _reserved(target: float | None) -> float | None:
    return mapped(lambda seconds: seconds * (1 - RESERVE), target)


@dataclass(frozen=True)
class LoadPoint:
    """One replica under one load.

    Requests per second, as a share of the maximum too; percentiles of time to first token, time per
    token and E2E latency in seconds; ``tokens`` are output tokens per second, ``inside`` is the
    mean number of requests in the engine.
    """

    rate: float
    share: float
    ttft: float
    tpot: float
    tokens: float
    inside: float
    e2e: float = 0.0


@dataclass(frozen=True)
class Curve:
    """One replica from idle to `CEILING`.

    ``most``: its maximum in requests per second; ``refused``: the share of requests that it never
    accepts (longer than it allows).
    """

    loads: tuple[LoadPoint, ...]
    most: float
    refused: float
    clients: bool = False

    @property
    def amounts(self) -> list[float]:
        """Return the measure of each load: requests per second, or clients."""
        return [load.inside if self.clients else load.rate for load in self.loads]

    def faster(self, factor: float) -> Curve:
        """Return the curve of a replica whose steps take 1 / ``factor`` of the time."""
        loads = [
            replace(
                load,
                rate=load.rate * factor,
                ttft=load.ttft / factor,
                tpot=load.tpot / factor,
                tokens=load.tokens * factor,
                e2e=load.e2e / factor,
            )
            for load in self.loads
        ]
        return replace(self, loads=tuple(loads), most=self.most * factor)


@dataclass(frozen=True)
class Fleet:
    """A number of replicas, and the latencies of each request (seconds)."""

    replicas: int
    cards: int
    nodes: int
    rate: float
    ttft: float
    tpot: float
    e2e: float = 0.0


@dataclass(frozen=True)
class ReplicaLoad:
    """One replica and its traffic.

    ``delay``: seconds that the API server and the client add to each request.
    """

    traffic: Traffic
    limits: EngineLimits
    cost: StepTime
    percentile: float
    delay: float = 0.0


class LoadCurve:
    """The loads of one replica, each simulated when it is first needed.

    At ``shares`` of its ``most`` requests per second; with ``counts`` at these numbers of clients
    instead.
    """

    def __init__(
        self,
        replica: ReplicaLoad,
        most: float,
        shares: Sequence[float] = SHARES,
        counts: Sequence[int] = (),
    ) -> None:
        self.replica = replica
        self.most = most
        self.shares = shares
        self.counts = counts
        self._loads: dict[int, LoadPoint] = {}

    def of(self, replica: ReplicaLoad) -> LoadCurve:
        """Return the same loads of another simulation of the replica."""
        return LoadCurve(replica, self.most, self.shares, self.counts)

    @property
    def size(self) -> int:
        """Return the number of loads."""
        return len(self.counts) or len(self.shares)

    def load(self, at: int) -> LoadPoint:
        """Return the load of this place."""
        if at not in self._loads:
            self._loads[at] = self._simulated(at)
        return self._loads[at]

    def _simulated(self, at: int) -> LoadPoint:
        if self.counts:
            return load_of_clients(self.replica, self.counts[at])
        return load_at(self.replica, self.shares[at], self.most)

    def amount(self, at: int) -> float:
        """Return the measure of a load: requests per second, or clients."""
        if self.counts:
            return float(self.counts[at])
        return self.shares[at] * self.most

    def within(self, targets: Targets) -> float | None:
        """Return `rate_within` of these loads, found by bisection.

        It is at least that of the complete curve, whose latencies never fall with load.
        """
        kept = self._within(targets.with_reserve())
        if kept is not None:
            return kept
        return self._within(targets)

    def _within(self, targets: Targets) -> float | None:
        low, high = -1, self.size
        while high - low > 1:
            middle = (low + high) // 2
            if _over(self.load(middle), targets):
                high = middle
            else:
                low = middle
        if low < 0:
            return None
        if high == self.size:
            return self.amount(low)
        part = _crossing(self.load(low), self.load(high), targets)
        return self.amount(low) + part * (self.amount(high) - self.amount(low))

    def at(self, amount: float) -> LoadPoint:
        """Return the load of this amount, on a straight line between its neighbours."""
        high = 0
        while high < self.size - 1 and self.amount(high) < amount:
            high += 1
        if not high:
            return self.load(0)
        before = self.amount(high - 1)
        part = max(0.0, min(1.0, (amount - before) / (self.amount(high) - before)))
        lower, upper = self.load(high - 1), self.load(high)
        names = ("rate", "share", "ttft", "tpot", "tokens", "inside", "e2e")
        ends = [(getattr(lower, name), getattr(upper, name)) for name in names]
        return LoadPoint(*(first + part * (last - first) for first, last in ends))


def _over(load: LoadPoint, targets: Targets) -> bool:
    """Return True if a latency of this load is over its target."""
    pairs = ((load.ttft, targets.ttft), (load.tpot, targets.tpot), (load.e2e, targets.e2e))
    return any(most is not None and value > most for value, most in pairs)


def _crossing(low: LoadPoint, high: LoadPoint, targets: Targets) -> float:
    """Return the share of the way between two loads at which a target is reached."""
    found = 1.0
    for name in ("ttft", "tpot", "e2e"):
        most = getattr(targets, name)
        before, after = getattr(low, name), getattr(high, name)
        if most is not None and after > most:
            found = min(found, (most - before) / (after - before))
    return float(found)


def simulate_curve(
    traffic: Traffic,
    limits: EngineLimits,
    cost: StepTime,
    percentile: float,
    *,
    delay: float = 0.0,
    quick: bool = False,
) -> Curve | None:
    """Return one replica at each of `SHARES`; None when it takes no request.

    ``delay``: seconds that the API server and the client add to each request. ``quick``: few loads
    and requests, to compare batches.
    """
    if quick:
        traffic = traffic.first(_QUICK_REQUESTS)
    most = most_requests(traffic, limits, cost)
    if most is None:
        return None
    replica = ReplicaLoad(traffic, limits, cost, percentile, delay)
    refused = _refused(traffic, limits)
    if quick:
        loads = [load_at(replica, share, most) for share in QUICK_SHARES]
    else:
        loads = [load_at(replica, share, most) for share in SHARES]
    return Curve(tuple(loads), most, refused)


def load_curve(
    replica: ReplicaLoad, *, clients: bool = False, shares: Sequence[float] = SHARES
) -> LoadCurve | None:
    """Return the loads of one replica; None when it takes no request."""
    most = most_requests(replica.traffic.first(_QUICK_REQUESTS), replica.limits, replica.cost)
    if most is None:
        return None
    counts: list[int] = []
    if clients:
        counts = _client_counts(replica.limits)
    return LoadCurve(replica, most, shares, counts)


def _client_counts(limits: EngineLimits) -> list[int]:
    """Return growing numbers of clients, up to what the replica serves at once."""
    counts = {1, limits.max_num_seqs}
    size = 1
    while size < limits.max_num_seqs:
        counts |= {max(1, round(step * size)) for step in _CLIENT_STEPS}
        size *= 2
    return sorted(counts)


def simulate_clients(
    traffic: Traffic, limits: EngineLimits, cost: StepTime, percentile: float, *, delay: float = 0.0
) -> Curve | None:
    """Return one replica with growing numbers of clients.

    The last one is the number of requests that it serves at once.
    """
    if most_requests(traffic.first(_QUICK_REQUESTS), limits, cost) is None:
        return None
    replica = ReplicaLoad(traffic, limits, cost, percentile, delay)
    loads = [load_of_clients(replica, count) for count in _client_counts(limits)]
    return Curve(tuple(loads), loads[-1].rate, _refused(traffic, limits), clients=True)


def load_of_clients(replica: ReplicaLoad, count: int) -> LoadPoint:
    """Return one replica with ``count`` clients that each wait for their answers."""
    limits = replica.limits
    part = replica.traffic.part(0.0, count)
    times = _times(replica, part, concurrency=count)
    ended = times.done[times.done == times.done]
    pace = len(ended) / max(float(ended.max()), 1e-9)
    share = count / limits.max_num_seqs
    return _point(times, replica.percentile, rate=pace, share=share, inside=float(count))


def settled_clients(replica: ReplicaLoad, count: int, requests: int) -> LoadPoint | None:
    """Return one replica with ``count`` clients, without its filling and emptying.

    Simulates about ``requests`` requests, fewer for few clients, at least four for each client.
    Returns None where there are too few.
    """
    import numpy as np

    # fewer clients need fewer requests: the queue has no past
    steps = int(_SETTLED_STEPS * count / max(1.0, replica.traffic.mean_output))
    least = min(requests, max(_FEWEST_SETTLED, steps))
    # equal lengths end in waves: complete ones are counted
    waves = max(_FEWEST_WAVES, math.ceil(least / count))
    part = replica.traffic.first(waves * count)
    waves = len(part.requests) // count
    times = _times(replica, part, concurrency=count)
    done = np.sort(times.done[~np.isnan(times.done)])
    if waves < _FEWEST_WAVES or not len(done):
        return None
    size = len(done) // waves
    first, last = size - 1, (waves - 1) * size - 1
    span = float(done[last] - done[first]) if size else 0.0
    pace = (last - first) / span if span > 0 else len(done) / max(float(done[-1]), 1e-9)
    settled = slice(count, len(part.requests) - count)
    # these clients are the first and the last of a run
    kept = Times(
        times.came[settled], times.first[settled], times.done[settled], times.output[settled]
    )
    return _point(kept, replica.percentile, rate=pace, share=1.0, inside=float(count))


def _refused(traffic: Traffic, limits: EngineLimits) -> float:
    return sum(1 for _, tokens, _ in traffic.requests if not _taken(tokens, limits)) / len(
        traffic.requests
    )


def _taken(tokens: int, limits: EngineLimits) -> bool:
    longest = min(limits.max_model_len, limits.num_blocks * limits.block_size) - 1
    if not limits.mixed_steps:
        # without chunked prefill a prompt has to fit into one step
        longest = min(longest, limits.longest_query)
    return tokens <= longest


def most_requests(traffic: Traffic, limits: EngineLimits, cost: StepTime) -> float | None:
    """Return the requests per second of an engine that always has more waiting.

    Measured while it is full. Return None when it accepts none.
    """
    import numpy as np

    full = traffic.part(0.0, limits.max_num_seqs)
    sent = CachedRequests(full.requests, full.cached)
    times = simulate_cached(sent, limits, cost, concurrency=limits.max_num_seqs)
    done = np.sort(times.done[~np.isnan(times.done)])
    if not len(done):
        return None
    # filling and emptying do not show its rate; very short runs have nothing else
    first, last = len(done) // 5, len(done) - 1 - len(done) // 5
    if last > first and done[last] > done[first]:
        return float((last - first) / (done[last] - done[first]))
    return float(len(done) / max(done[-1], 1e-9))


def load_at(replica: ReplicaLoad, share: float, most: float) -> LoadPoint:
    """Return the load at this share of the ``most`` requests per second."""
    import numpy as np

    rate = share * most
    requests = replica.traffic.part(share, rate * _least_stay(replica))
    times = _times(replica, requests, rate=rate)
    settled = slice(int(len(requests.requests) * _SETTLING), None)
    part = Times(
        times.came[settled], times.first[settled], times.done[settled], times.output[settled]
    )
    stay = part.done - part.came
    # rate x mean stay is the mean number inside (Little)
    inside = rate * float(np.nanmean(stay)) if not np.isnan(stay).all() else 0.0
    return _point(part, replica.percentile, rate=rate, share=share, inside=inside)


def _times(
    replica: ReplicaLoad, traffic: Traffic, *, rate: float = 1.0, concurrency: int | None = None
) -> Times:
    """Return the times of ``traffic`` on a replica."""
    return simulate_cached(
        CachedRequests(traffic.requests, traffic.cached),
        replica.limits,
        replica.cost,
        rate=rate,
        concurrency=concurrency,
        delay=replica.delay,
    )


def _least_stay(replica: ReplicaLoad) -> float:
    """Return the seconds of a mean request in an idle engine."""
    output = replica.traffic.mean_output
    prefill, decode = replica.cost.prefill(1, replica.traffic.mean_input), replica.cost.decode(1, 1)
    return float(prefill + output * decode) / 1000


def _point(
    times: Times, percentile: float, *, rate: float, share: float, inside: float
) -> LoadPoint:
    import numpy as np

    several = times.output > 1
    each = (times.done - times.first)[several] / (times.output[several] - 1)
    return LoadPoint(
        rate=rate,
        share=share,
        ttft=_percentile(times.first - times.came, percentile),
        tpot=_percentile(each, percentile),
        tokens=rate * float(np.mean(times.output)),
        inside=inside,
        e2e=_percentile(times.done - times.came, percentile),
    )


def _percentile(values: object, percentile: float) -> float:
    import numpy as np

    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    # the smallest value that this share of requests stays within, never a made-up one between two
    if not len(known):
        return 0.0
    return float(np.percentile(known, percentile, method="higher"))


def _rising(values: Sequence[float]) -> list[float]:
    """Return values that never fall: a latency at some load is kept at a higher one."""
    return list(accumulate(values, max))


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
    """Return the load that one replica takes within the targets, with their reserve.

    Requests per second, or clients; None when not even an idle one is within them. Where only the
    targets themselves can be met, they count.
    """
    kept = _within(curve, targets.with_reserve())
    if kept is not None:
        return kept
    return _within(curve, targets)


def _within(curve: Curve, targets: Targets) -> float | None:
    amounts = curve.amounts
    found = (
        _highest(amounts, [load.ttft for load in curve.loads], targets.ttft),
        _highest(amounts, [load.tpot for load in curve.loads], targets.tpot),
        _highest(amounts, [load.e2e for load in curve.loads], targets.e2e),
    )
    known = [amount for amount in found if amount is not None]
    if len(known) < len(found):
        return None
    return min(known)


def latencies_at(curve: Curve, amount: float) -> tuple[float, float, float]:
    """Return (time to first token, time per token, E2E latency) at this load."""
    amounts = curve.amounts

    def read(values: list[float]) -> float:
        rising = _rising(values)
        for at in range(1, len(amounts)):
            if amount <= amounts[at]:
                part = max(0.0, (amount - amounts[at - 1]) / (amounts[at] - amounts[at - 1]))
                return rising[at - 1] + part * (rising[at] - rising[at - 1])
        return rising[-1]

    loads = curve.loads
    ttft, tpot = read([load.ttft for load in loads]), read([load.tpot for load in loads])
    return ttft, tpot, read([load.e2e for load in loads])


def nodes_for(replicas: int, cards: int, cards_per_node: int) -> int:
    """Return the nodes of this number of replicas of ``cards`` cards.

    No replica is divided between nodes unless it is larger than one.

    >>> [nodes_for(5, 2, 8), nodes_for(3, 8, 8), nodes_for(3, 16, 8), nodes_for(3, 3, 8)]
    [2, 3, 6, 2]
    """
    if cards > cards_per_node:
        return replicas * math.ceil(cards / cards_per_node)
    return math.ceil(replicas / (cards_per_node // cards))


def replicas_on(nodes: int, cards: int, cards_per_node: int) -> int:
    """Return the number of replicas that these nodes can run."""
    if cards > cards_per_node:
        return nodes // math.ceil(cards / cards_per_node)
    return nodes * (cards_per_node // cards)


def fleet_for(
    curve: Curve, targets: Targets, demand: float, cards: int, cards_per_node: int
) -> Fleet | None:
    """Return the smallest fleet for ``rate`` requests per second.

    Return None when no number of replicas meets the targets.
    """
    each = rate_within(curve, targets)
    if each is None:
        return None
    if curve.clients:
        each = max(1.0, float(math.floor(each + 1e-9)))
    # rounding may make an integer slightly larger
    replicas = max(1, math.ceil(demand / each - 1e-9))
    ttft, tpot, e2e = latencies_at(curve, demand / replicas)
    nodes = nodes_for(replicas, cards, cards_per_node)
    return Fleet(replicas, replicas * cards, nodes, each, ttft, tpot, e2e)
