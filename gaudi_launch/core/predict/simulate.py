"""The outcome of a load: ``simulate(setup, load) -> Outcome``. Pure.

Requests are simulated one by one as the engine schedules them; a static batch, which no engine
schedules, is the formula of its steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

from gaudi_launch.core.predict.evidence import Band, Evidence, Query, evidence_for, of_learned
from gaudi_launch.core.predict.learned import learned_for, values
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.load import CachedRequests, Load
from gaudi_launch.core.predict.loads import Lengths, static_batch
from gaudi_launch.core.predict.loads import steps as steps_of
from gaudi_launch.core.predict.published import figures
from gaudi_launch.core.predict.scaling import Speed
from gaudi_launch.core.predict.simulator import Times, simulate_cached
from gaudi_launch.core.predict.step_model import Parts
from gaudi_launch.core.predict.weighted_sum import import_numpy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# the constant of what the API server and the client add to a request
_DELAY = "api.request"
# above this share of the rate at which the queue grows without end several seeds are run; below it
# where the parts of a run show that a 95th percentile of another seed may differ by more. No share
# is low enough for all loads: where a few in a hundred wait for a place in the batch, the TTFT's is
# where the waiting begins
SAFE_SHARE, _AGREE = 0.8, 0.03
_SEEDS = 3
# a queue forgets its past after about 1 / (1 - share)^2 services (the relaxation time of M/M/1,
# M/D/1): a percentile needs thousands of them
_FORGETTING = 4000
_FEWEST = 40_000
# requests of each seed above the safe share
_EACH_SEED = 40_000
# the range of a sample is by its parts: another one is inside 19 times of 20, for Student's t of
# the difference of two means of ten is 2.26 * sqrt(2 / 10) standard deviations of a part
_PARTS, _APART = 10, 1.01
# the first tenth of drawn requests meet an empty engine
_SETTLING = 0.1
# requests that show the rate of a full engine
_FULL = 3000
# clients of a closed loop: requests, and at least this many of each client, of which the first and
# the last meet an engine that fills or empties
_CLOSED, _FEWEST_WAVES = 2000, 4


@dataclass(frozen=True)
class ServedSetup:
    """An engine on its cards: what it schedules within, and how long its steps take.

    ``dtype`` is that of the weights on the card. ``measured`` False: no published figure is of this
    product or number of cards. With pipeline stages it is one of as many virtual engines.
    """

    limits: EngineLimits
    speed: Speed
    dtype: str = "bfloat16"
    measured: bool = True


@dataclass(frozen=True, eq=False)
class Latency:
    """Seconds of one kind for each request, of each seed.

    ``measure`` is a name of `Figure.measure`. ``sample``: the requests came at random, and the
    percentiles of others differ.
    """

    measure: str
    runs: tuple[Floats, ...]
    sample: bool = False

    @property
    def mean(self) -> float:
        """Return the mean over the requests."""
        return _middle([float(run.mean()) if len(run) else 0.0 for run in self.runs])

    def at(self, percentile: float) -> float:
        """Return the time that this share of the requests stays within."""
        return _middle([_percentile(run, percentile) for run in self.runs])

    def between(self, percentile: float) -> tuple[float, float]:
        """Return the least and the most of the seeds, or the range of a sample."""
        import numpy as np

        found = [_percentile(run, percentile) for run in self.runs]
        apart = 0.0
        if self.sample:
            parts = np.array_split(self.runs[0], _PARTS)
            apart = _APART * float(
                np.std([_percentile(each, percentile) for each in parts], ddof=1)
            )
        return max(0.0, min(found) - apart), max(found) + apart

    @property
    def agrees(self) -> bool:
        """Return True if the 95th percentile of another seed will hardly differ."""
        return self.between(95)[1] <= (1 + _AGREE) * self.at(95)


def _percentile(seconds: Floats, percentile: float) -> float:
    import numpy as np

    if not len(seconds):
        return 0.0
    # the smallest value that this share of requests stays within, never one between two
    return float(np.percentile(seconds, percentile, method="higher"))


def _middle(found: list[float]) -> float:
    return sorted(found)[len(found) // 2]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The work of one engine under a load.

    ``requests`` were simulated with each of ``seeds``. ``rate`` is in requests per second,
    ``tokens`` are output tokens per second, ``inside`` the mean number of requests in the engine
    that do not wait for a place, ``refused`` the share of requests that it never accepts, ``full``
    the requests per second of an engine that always has more waiting (0 where it was not needed).
    """

    setup: ServedSetup
    load: Load
    requests: int
    seeds: int
    rate: float
    tokens: float
    inside: float
    refused: float
    ttft: Latency
    tpot: Latency
    e2e: Latency
    full: float = 0.0

    @property
    def saturated(self) -> bool:
        """Return True if requests come faster than they are served: the queue never ends."""
        return 0 < self.full <= self.rate * (1 - self.refused)

    @property
    def served(self) -> float:
        """Return the requests per second that are served, with those refused meanwhile."""
        if not self.saturated:
            return self.rate
        return self.full / (1 - self.refused)

    @property
    def bound(self) -> str:
        """Return the largest part of the time."""
        return max(self.share, key=lambda part: self.share[part])

    @cached_property
    def evidence(self) -> Evidence:
        """Return the published figures near this load, with the range of its class."""
        speed = self.setup.speed
        learned = learned_for(speed.setup.generation)
        known = figures()
        if learned is not None:
            known = (*learned.measurements, *known)
        query = Query(
            setup=speed.setup,
            shape=speed.shape,
            input=self.load.mean_input,
            output=self.load.mean_output,
            batch=max(1.0, self.inside),
            measured=speed.measured and self.setup.measured,
        )
        found = evidence_for(query, known, values())
        if learned is None:
            return found
        return of_learned(found, version=learned.version, typical=learned.typical)

    def time(self, latency: Latency, percentile: float | None = None) -> Band:
        """Return a latency with its range: by the evidence, and by the seeds.

        ``percentile`` None: the mean.
        """
        if percentile is None:
            return self.evidence.time(latency.mean, latency.measure)
        low, high = latency.between(percentile)
        return Band(
            self.evidence.time(low).low, latency.at(percentile), self.evidence.time(high).high
        )

    @property
    def throughput(self) -> Band:
        """Return output tokens per second with their range; a given rate is kept."""
        band = self.evidence.speed(self.tokens, "throughput")
        if self.load.rate and not self.saturated:
            return Band(min(band.low, self.tokens), self.tokens, self.tokens)
        return band

    @cached_property
    def share(self) -> Mapping[str, float]:
        """Return the parts of the time of all steps, as shares of it."""
        parts = (
            self.steps[0]
            .times(max(1.0, self.inside))
            .plus(self.steps[1].times(max(1.0, self.load.mean_output - 1)))
        )
        total = float(parts.total)
        return {each.name: float(getattr(parts, each.name)) / total for each in fields(Parts)}

    @cached_property
    def steps(self) -> tuple[Parts, Parts]:
        """Return the parts of a prefill step of one prompt and of a decode step."""
        made = steps_of(self.setup.speed.setup, self.setup.speed.shape, values())
        prompts = self.load.batch or 1
        context = self.load.mean_input + self.load.mean_output / 2
        return made.prefill(prompts, self.load.mean_input), made.decode(
            max(1.0, self.inside), context
        )


def simulate(
    setup: ServedSetup, load: Load, *, most: int | None = None, full: float | None = None
) -> Outcome | None:
    """Return the outcome of ``load``; None where no request is accepted.

    ``most``: simulate only this many requests, to compare setups. ``full``: `most_rate`, where it
    is known.
    """
    import_numpy()
    if load.batch:
        return _static(setup, load)
    load = load.with_cache(setup.limits.prefix_tokens)
    if load.clients:
        return _closed(setup, load, most)
    if full is None:
        full = most_rate(setup, load, most)
    if full is None:
        return None
    return _open(setup, load, most, full)


def request_delay() -> float:
    """Return the seconds that the API server and the client add to each request."""
    return values()[_DELAY]


def _static(setup: ServedSetup, load: Load) -> Outcome:
    """Return prompts prefilled together, then decoded together."""
    import numpy as np

    made = steps_of(setup.speed.setup, setup.speed.shape, values())
    lengths = Lengths(load.mean_input, load.mean_output)
    found = static_batch(made.prefill, made.decode, lengths, load.batch)
    ended = found.parts.total
    return Outcome(
        setup=setup,
        load=load,
        requests=load.batch,
        seeds=1,
        rate=load.batch / ended,
        tokens=found.throughput,
        inside=float(load.batch),
        refused=0.0,
        ttft=Latency("ttft", (np.array([found.ttft]),)),
        tpot=Latency("tpot", (np.array([found.tpot]),)),
        e2e=Latency("e2e", (np.array([ended]),)),
    )


def _closed(setup: ServedSetup, load: Load, most: int | None) -> Outcome | None:
    """Return the outcome of clients that wait for their answers.

    All of a trace count, of drawn requests those between filling and emptying.
    """
    import numpy as np

    count, ends = None, 0
    if not load.recorded or most is not None:
        # equal lengths end in waves: complete ones are counted
        waves = max(_FEWEST_WAVES, math.ceil((most or _CLOSED) / load.clients))
        count, ends = waves * load.clients, load.clients
    times = _run(setup, load.sent(count), concurrency=load.clients)
    done = np.sort(_known(times.done))
    if not len(done):
        return None
    first, last = 0, len(done)
    if len(done) > 2 * ends:
        first, last = ends, len(done) - ends
    span = float(done[last - 1] - (done[first - 1] if first else 0.0))
    counted = slice(ends, len(times.came) - ends)
    return _outcome(setup, load, (times,), counted, (last - first) / max(span, 1e-9))


def _open(setup: ServedSetup, load: Load, most: int | None, full: float) -> Outcome:
    """Return the requests that arrive at a rate."""
    if load.recorded:
        only = _run(setup, load.sent(most), rate=load.rate)
        return _limited(_outcome(setup, load, (only,), slice(None), load.rate), full)
    share = load.rate / full

    def drawn(count: int, seeds: int = 1) -> Outcome:
        runs = tuple(_run(setup, load.sent(count, seed), rate=load.rate) for seed in range(seeds))
        counted = slice(int(count * _SETTLING), None)
        sample = most is None and share <= SAFE_SHARE
        return _limited(_outcome(setup, load, runs, counted, load.rate, sample=sample), full)

    if most is not None:
        return drawn(most)
    if share > SAFE_SHARE:
        return drawn(_EACH_SEED, _SEEDS)
    count = int(max(_FEWEST, _FORGETTING / (1 - share) ** 2))
    found = drawn(count)
    if all(each.agrees for each in (found.ttft, found.tpot, found.e2e)):
        return found
    return drawn(count, _SEEDS)


def most_rate(setup: ServedSetup, load: Load, most: int | None = None) -> float | None:
    """Return the requests per second of an engine that always has more waiting.

    Measured while it is full, with about ``most`` requests. Return None when it accepts none.
    """
    import numpy as np

    seqs, load = setup.limits.max_num_seqs, load.with_cache(setup.limits.prefix_tokens)
    count = max(most or _FULL, 2 * seqs)
    done = np.sort(_known(_run(setup, load.sent(min(count, _FULL)), concurrency=seqs).done))
    if not len(done):
        return None
    # filling and emptying do not show its rate; very short runs have nothing else
    first, last = len(done) // 5, len(done) - 1 - len(done) // 5
    if last > first and done[last] > done[first]:
        return float((last - first) / (done[last] - done[first]))
    return float(len(done) / max(done[-1], 1e-9))


def _run(
    setup: ServedSetup, sent: CachedRequests, *, rate: float = 1.0, concurrency: int | None = None
) -> Times:
    delay = request_delay()
    return simulate_cached(
        sent, setup.limits, setup.speed.cost, rate=rate, concurrency=concurrency, delay=delay
    )


def _outcome(
    setup: ServedSetup,
    load: Load,
    runs: Sequence[Times],
    counted: slice,
    rate: float,
    *,
    sample: bool = False,
) -> Outcome:
    """Return the outcome of runs of one load with other seeds.

    ``rate``: requests per second. Those of ``counted`` count. ``sample`` as in `Latency`.
    """
    import numpy as np

    ttft, tpot, e2e = [], [], []
    for times in runs:
        came, first, done = times.came[counted], times.first[counted], times.done[counted]
        output = times.output[counted]
        several = output > 1
        ttft.append(_known(first - came))
        tpot.append(_known((done - first)[several] / (output[several] - 1)))
        e2e.append(_known(done - came))
    ended, first_run = Latency("e2e", tuple(e2e), sample), runs[0]
    came = first_run.came
    # of drawn requests the lengths are known better than those of a sample
    asked = sum(request[2] for request in load.sent(len(came)).requests)
    made = float(first_run.output.sum()) / max(1, asked)
    # rate x mean stay is the mean number inside (Little), and of those that wait for a place
    inside = float(load.clients) or rate * ended.mean
    return Outcome(
        setup=setup,
        load=load,
        requests=len(came),
        seeds=len(runs),
        rate=rate,
        tokens=rate * load.mean_output * made,
        inside=min(inside, float(setup.limits.max_num_seqs)),
        refused=float(np.isnan(came).mean()),
        ttft=Latency("ttft", tuple(ttft), sample),
        tpot=Latency("tpot", tuple(tpot), sample),
        e2e=ended,
    )


def _limited(found: Outcome, full: float) -> Outcome:
    """Return an outcome with no more tokens than those of a full engine."""
    made = replace(found, full=full)
    return replace(made, tokens=found.tokens * made.served / found.rate)


def _known(values: Floats) -> Floats:
    found: Floats = values[values == values]
    return found
