"""The load of one replica within the targets, and replicas on servers. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable

from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.load import Load
from gaudi_launch.core.predict.simulate import Outcome, ServedSetup, most_rate, simulate
from gaudi_launch.core.predict.targets import Targets

# fractions of a replica's maximum. Close to the maximum a queue grows without end, which no run of
# some ten thousand requests would show; the last fraction is therefore the ceiling
SHARES = (0.02, *(step / 20 for step in range(1, 19)))
CEILING = SHARES[-1]
# loads that show which of several candidates carries most
QUICK_SHARES = (0.06, 0.15, 0.3, 0.55, 0.75, CEILING)
# the share of each target that is kept free: other arrivals of one load move a percentile by about
# this much (measured with other seeds of the simulator, scripts/acceptance/recommend.py)
RESERVE = 0.02
# more clients than requests that run only wait
_CLIENT_STEPS = (0.75, 1.0)


def carried(
    setup: ServedSetup,
    load: Load,
    targets: Targets,
    *,
    clients: bool,
    most: int | None,
    near: float = 0.0,
) -> float:
    """Return the most that ``setup`` carries within the targets.

    In requests per second, or clients; 0 where even an idle one misses them, or accepts no request.
    ``most``: simulate only this many requests, to compare; None: as many as there are. ``near``:
    where the answer is expected.
    """
    full = most_rate(setup, load, most)
    if full is None:
        return 0.0
    shares = QUICK_SHARES if most is not None and most < 1000 else SHARES
    amounts = [share * full for share in shares]
    if clients:
        amounts = [float(count) for count in client_counts(setup.limits)]
    known: dict[int, Outcome | None] = {}

    def at(number: int) -> Outcome | None:
        if number not in known:
            amount = amounts[number]
            asked = load.of_clients(int(amount)) if clients else load.at_rate(amount)
            known[number] = simulate(setup, asked, most=most, full=full)
        return known[number]

    begin = sum(amount < near for amount in amounts)
    found = _within(amounts, at, targets.times(1 - RESERVE), begin)
    if not found:
        # where only the targets themselves can be met, they count
        found = _within(amounts, at, targets, 0)
    if found and clients:
        return max(1.0, math.floor(found + 1e-9))
    return found


def _within(
    amounts: list[float], at: Callable[[int], Outcome | None], targets: Targets, begin: int
) -> float:
    """Return the highest amount within the targets; 0 without one.

    ``begin`` is tried first.
    """
    last = len(amounts) - 1
    missed = fewest(0, last, min(begin, last), lambda number: bool(targets.missed(at(number))))
    if not missed:
        return 0.0
    within = amounts[missed - 1]
    if missed > last:
        return within
    part = targets.crossing(at(missed - 1), at(missed))
    return within + part * (amounts[missed] - within)


def fewest(least: int, most: int, near: int, meets: Callable[[int], bool]) -> int:
    """Return the fewest from ``least`` to ``most`` that meet.

    One more where none does. ``near`` is tried first; then in steps that double, then in halves.

    >>> [fewest(1, 9, near, lambda number: number > 5) for near in (1, 4, 6, 9)]
    [6, 6, 6, 6]
    >>> fewest(3, 9, 4, lambda number: True), fewest(3, 9, 4, lambda number: False)
    (3, 10)
    """
    low, high = least - 1, most + 1
    number, step = near, 1
    while high - low > 1:
        if meets(number):
            high = number
        else:
            low = number
        number = (low + high) // 2
        if low < least:
            number = max(least, high - step)
        elif high > most:
            number = min(most, low + step)
        step *= 2
    return high


def client_counts(limits: EngineLimits) -> list[int]:
    """Return growing numbers of clients, up to what the replica serves at once."""
    counts = {1, limits.max_num_seqs}
    size = 1
    while size < limits.max_num_seqs:
        counts |= {max(1, round(step * size)) for step in _CLIENT_STEPS}
        size *= 2
    return sorted(counts)


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
