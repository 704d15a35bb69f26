"""The limit of a configuration: a part of its steps, its cache, or its warm-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gaudi_launch.extensions.recommend.space import SearchCase
from gaudi_launch.extensions.recommend.trial import Trial


@dataclass(frozen=True)
class Limit:
    """The limit by name, and the parts of the step time as shares of it.

    ``name`` is a part (weights, kv, arithmetic, links, host), "cache" where the KV cache is too
    small for the batch, or "start" where a better one takes too long to warm up.
    """

    name: str
    shares: Mapping[str, float]


def limit_of(case: SearchCase, trial: Trial, others: Sequence[Trial]) -> Limit | None:
    """Return the limit of a trial; None where it does not run."""
    if trial.setup is None or trial.outcome is None:
        return None
    name, limits, load = trial.outcome.bound, trial.setup.limits, case.load
    longest = -(-int(load.mean_input + load.mean_output) // limits.block_size)
    if longest * trial.candidate.batch > limits.num_blocks:
        name = "cache"
    elif any(each.missed == ("start",) and each.score > trial.score for each in others):
        name = "start"
    return Limit(name, trial.outcome.share)
