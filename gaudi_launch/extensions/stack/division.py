"""Divide the cards of a machine among several services, once.

Each set is chosen as for one service (`core.planning.placement`): one link group, one NUMA node, a
documented set, most complete sets left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.planning.placement import Placement, choose


@dataclass(frozen=True)
class CardShare:
    """The cards of an engine to start: a number, or the modules that the user chose."""

    cards: int
    modules: tuple[int, ...] | None = None
    name: str = ""
    model: str = ""


def with_cards(host: Host, *, busy: Iterable[int] | None = None) -> Host:
    """Return the machine with these modules busy, too; with all cards free for None."""
    if busy is None:
        return replace(host, cards=tuple(replace(card, busy=False) for card in host.cards))
    return host.with_use(busy, busy=True)


def placing_order(shares: Sequence[CardShare], host: Host) -> tuple[int, ...]:
    """Return the order in which shares get cards, as positions.

    Chosen modules first. On machines of several link groups then sets of 4 and 2, which must be in
    one group; the largest first.
    """

    def rank(position: int) -> tuple[bool, bool, int, int]:
        share = shares[position]
        in_group = len(host.groups) > 1 and share.cards in (2, 4)
        return (share.modules is None, not in_group, -share.cards, position)

    return tuple(sorted(range(len(shares)), key=rank))


def divide(
    host: Host,
    shares: Sequence[CardShare],
    *,
    visible: tuple[int, ...] | None = None,
    refused: Callable[[int, LaunchError], LaunchError],
) -> tuple[Placement, ...]:
    """Return the cards of each share, in the order given; no card is in two.

    ``visible`` are the modules that the environment allows. A share without cards is placed
    nowhere. Raises what ``refused`` makes of the position and the error of a share.
    """
    placed: dict[int, Placement] = {}
    taken: list[int] = []
    for position in placing_order(shares, host):
        share = shares[position]
        if not share.cards:
            placed[position] = Placement(modules=())
            continue
        try:
            chosen = choose(with_cards(host, busy=taken), share.cards, share.modules, visible)
        except LaunchError as error:
            raise refused(position, error) from None
        placed[position] = chosen
        taken += chosen.modules
    return tuple(placed[position] for position in range(len(shares)))
