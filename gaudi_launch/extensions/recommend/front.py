"""Pareto fronts of trials: tokens per second and card, and cards for a rate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gaudi_launch.extensions.recommend.space import SearchCase
from gaudi_launch.extensions.recommend.trial import Trial

# the rates of the second front, as shares of the given or the carried one
_SHARES = (0.5, 1.0, 2.0, 5.0, 10.0)


def front(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the Pareto front, fastest first.

    Of tokens per second and card against time per token.
    """
    known = [
        trial for trial in trials if trial.served is not None and not set(trial.missed) & {"start"}
    ]
    found: list[Trial] = []
    most = 0.0
    for trial in sorted(known, key=_by_time):
        assert trial.served is not None
        if trial.served.per_card > most:
            found.append(trial)
            most = trial.served.per_card
    return tuple(found)


def _by_time(trial: Trial) -> tuple[float, float]:
    assert trial.served is not None
    return (trial.served.tpot, -trial.served.per_card)


def cards_for_rates(
    case: SearchCase, trials: Sequence[Trial], rate: float = 0.0
) -> list[tuple[float, int]]:
    """Return rates around ``rate``, each with its fewest cards.

    In requests per second. 0: around what the first one carries.
    """
    able = [trial for trial in trials[:1] if trial.meets]
    if not able:
        return []
    first = able[0].served
    assert first is not None, "it meets the targets"
    one = first.spare / first.replicas / case.load.mean_output
    if rate and able[0].each:
        one = able[0].each * able[0].candidate.pipeline
    base, world = rate or one * first.replicas, able[0].candidate.world
    return [
        (base * share, world * max(1, math.ceil(base * share / one - 1e-9))) for share in _SHARES
    ]
