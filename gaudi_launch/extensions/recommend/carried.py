"""The load of one replica within the targets, and replicas on servers. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.load import Load
from gaudi_launch.core.predict.simulate import Outcome, ServedSetup, most_rate, simulate
from gaudi_launch.core.predict.targets import RESERVE, Targets

# fractions of a replica's maximum. Close to the maximum a queue grows without end, which no run of
# some ten thousand requests would show; the last fraction is therefore the ceiling
SHARES = (0.02, *(step / 20 for step in range(1, 19)))
CEILING = SHARES[-1]
# loads that show which of several candidates carries most
QUICK_SHARES = (0.06, 0.15, 0.3, 0.55, 0.75, CEILING)
# more clients than requests that run only wait
_CLIENT_STEPS = (0.75, 1.0)


@dataclass(frozen=True)
class Carried:
    """The most that one replica carries within the targets.

    In requests per second, or clients; 0 where even an idle one misses them.
    ``idle`` is the outcome of the least load where that is too much, ``full`` the requests per
    second of a replica that always has more waiting.
    """

    amount: float
    full: float
    idle: Outcome | None = None


def carried(
    setup: ServedSetup,
    load: Load,
    targets: Targets,
    *,
    clients: bool,
    most: int | None,
    near: float = 0.0,
) -> Carried | None:
    """Return the most that ``setup`` carries within the targets.

    None where it accepts no request.
    ``most``: simulate only this many requests, to compare; None: as many as there are. ``near``:
    where the answer is expected.
    """
    full = most_rate(setup, load, most)
    if full is None:
        return None
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
    if not found:
        return Carried(0.0, full, at(0))
    if clients:
        found = max(1.0, math.floor(found + 1e-9))
    return Carried(found, full)


def _within(
    amounts: list[float], at: Callable[[int], Outcome | None], targets: Targets, begin: int
) -> float:
    """Return the highest amount within the targets; 0 without one.

    ``begin`` is tried first.
    """
    low, high = -1, len(amounts)
    middle = min(begin, high - 1)
    while high - low > 1:
        if targets.missed(at(middle)):
            high = middle
            following = middle - 1
        else:
            low = middle
            following = middle + 1
        middle = (low + high) // 2
        if begin and (low < 0 or high == len(amounts)):
            # no bound on the other side yet
            middle = following
    if low < 0:
        return 0.0
    if high == len(amounts):
        return amounts[low]
    part = targets.crossing(at(low), at(high))
    return amounts[low] + part * (amounts[high] - amounts[low])


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
