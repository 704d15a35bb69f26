"""The limit of a configuration: a part of its steps, its cache, or its warm-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from gaudi_launch.performance.constants import values
from gaudi_launch.performance.loads import Lengths, closed_loop
from gaudi_launch.performance.prediction import steps
from gaudi_launch.recommend.space import SearchCase
from gaudi_launch.recommend.trial import Trial


@dataclass(frozen=True)
class Limit:
    """The limit by name, and the parts of the step time as shares of it.

    ``name`` is a part (weights, kv, arithmetic, links, host), "cache" where the KV cache is too
    small for the batch, or "start" where a better one takes too long to warm up.
    """

    name: str
    shares: Mapping[str, float]


def inside_of(case: SearchCase, trial: Trial) -> float:
    """Return the mean number of requests in one virtual engine, by Little's law."""
    if trial.served is None:
        return 1.0
    engines = trial.served.replicas * trial.candidate.pipeline
    rate = trial.served.tokens / engines / case.traffic.mean_output
    return max(1.0, min(rate * trial.served.e2e, trial.candidate.batch))


def limit_of(case: SearchCase, trial: Trial, others: Sequence[Trial]) -> Limit | None:
    """Return the limit of a trial; None where it does not run."""
    if trial.replica is None or trial.served is None:
        return None
    speed, traffic = trial.replica.speed, case.traffic
    made = steps(speed.setup, speed.shape, values())
    lengths = Lengths(traffic.mean_input, max(2.0, traffic.mean_output))
    parts = closed_loop(made.prefill, made.decode, lengths, inside_of(case, trial)).parts
    total = float(parts.total)
    shares = {each.name: float(getattr(parts, each.name)) / total for each in fields(parts)}
    name = max(shares, key=lambda part: shares[part])
    limits = trial.replica.limits
    longest = -(-int(traffic.mean_input + traffic.mean_output) // limits.block_size)
    if longest * trial.candidate.batch > limits.num_blocks:
        name = "cache"
    elif any(each.missed == ("start",) and each.score > trial.score for each in others):
        name = "start"
    return Limit(name, shares)
