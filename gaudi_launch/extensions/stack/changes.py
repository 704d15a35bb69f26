"""Steps from the engines that run to those of a file; models continue to answer.

Pure. A new version of an engine starts next to the old one where the free cards allow it; otherwise
old engines end first, one by one, until it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.planning.placement import Placement, choose

Refused = Callable[[str, LaunchError], LaunchError]
"""Makes the error of a model that gets no cards, from its name and the reason."""


@dataclass(frozen=True)
class CardShare:
    """The cards of an engine to start: a number, or the modules that the user chose."""

    cards: int
    modules: tuple[int, ...] | None = None
    name: str = ""
    model: str = ""


@dataclass(frozen=True)
class RunningEngine:
    """An engine of a stack that runs.

    ``role``: kept with the settings of the file, old where another version takes its place, gone
    where none does.
    """

    name: str
    model: str
    modules: tuple[int, ...] = ()
    role: Literal["kept", "old", "gone"] = "kept"


@dataclass(frozen=True)
class ChangeStep:
    """One step of a change.

    End ``ends_first``, start ``starts``, wait for them, end ``ends_after``. All are names of
    services. ``models`` are those that are started; those of ``interrupted``
    have no engine that answers from the beginning of the step to its end.
    """

    models: tuple[str, ...] = ()
    ends_first: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    ends_after: tuple[str, ...] = ()
    interrupted: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChangeCase:
    """Engines that run, and those to start.

    ``groups`` are the models of the file in their start order, ``visible`` the modules that the
    environment allows. On ``host`` the cards of ``running`` count as used only while it runs.
    """

    host: Host
    groups: tuple[tuple[str, ...], ...]
    running: tuple[RunningEngine, ...]
    new: tuple[CardShare, ...]
    visible: tuple[int, ...] | None = None


def steps_of(
    case: ChangeCase, refused: Refused
) -> tuple[tuple[ChangeStep, ...], Mapping[str, Placement]]:
    """Return the steps to what is to run, and the cards of new engines.

    Engines that the file has no more end first. Cards are divided once for all new engines where
    all fit next to the old ones. Raises what ``refused`` makes for a model without cards.
    """
    own = [module for each in case.running for module in each.modules]
    gone = tuple(each.name for each in case.running if each.role == "gone")
    kept = tuple(each for each in case.running if each.role != "gone")
    host = case.host.with_use(own, busy=False)
    rolling = _Rolling(replace(case, host=host, running=kept), refused)
    first = (ChangeStep(ends_first=gone),) if gone else ()
    return (*first, *rolling.steps()), rolling.placements


class _Rolling:
    """Starts new engines group by group, with the cards that are free at that time."""

    def __init__(self, case: ChangeCase, refused: Refused) -> None:
        self._case = case
        self._refused = refused
        self._reason: LaunchError | None = None
        self._old = [each for each in case.running if each.role == "old"]
        self._used = {each.name: each.modules for each in case.running}
        self._answering = [(each.name, each.model) for each in case.running]
        self.placements: dict[str, Placement] = {}
        self._at_once = self._fitting(case.new)

    def steps(self) -> list[ChangeStep]:
        """Return the steps of all groups."""
        found: list[ChangeStep] = []
        for group in self._case.groups:
            left = [each for each in self._case.new if each.model in group]
            while left:
                step = self._next(left)
                left = [each for each in left if each.name not in step.starts]
                found.append(self._with_old(step, left))
            rest = [each for each in self._old if each.model in group]
            if rest:
                # their new version runs already: the command before this one was interrupted
                models = tuple(dict.fromkeys(each.model for each in rest))
                names = tuple(each.name for each in rest)
                self._end(names)
                found.append(ChangeStep(models=models, ends_after=names))
        return found

    def _fitting(self, wanted: Sequence[CardShare]) -> dict[str, Placement] | None:
        """Return cards for these engines next to all that run, if they suffice."""
        busy = [module for modules in self._used.values() for module in modules]
        try:
            placed = divide(
                with_cards(self._case.host, busy=busy),
                wanted,
                visible=self._case.visible,
                refused=lambda position, error: error,
            )
        except LaunchError as error:
            self._reason = error
            return None
        return {each.name: cards for each, cards in zip(wanted, placed, strict=True)}

    def _next(self, left: Sequence[CardShare]) -> ChangeStep:
        """Return the step that starts as many of these as possible."""
        if self._at_once is not None:
            chosen = {each.name: self._at_once[each.name] for each in left}
            return self._started(left, chosen, ())
        fitting = self._most(left)
        if fitting:
            return self._started(left, fitting, ())
        return self._in_place(left)

    def _most(self, left: Sequence[CardShare]) -> dict[str, Placement]:
        """Return the cards of the engines that fit next to all that run."""
        chosen: list[CardShare] = []
        for each in left:
            if self._fitting([*chosen, each]) is not None:
                chosen.append(each)
        return self._fitting(chosen) or {}

    def _in_place(self, left: Sequence[CardShare]) -> ChangeStep:
        """Return the step that ends old engines first, until one new one fits."""
        for each in left:
            before = (dict(self._used), list(self._answering), list(self._old))
            ended: list[str] = []
            while mine := [old.name for old in self._old if old.model == each.model]:
                ended.append(mine[0])
                self._end(mine[:1])
                placed = self._fitting([each])
                if placed is not None:
                    return self._started(left, placed, tuple(ended))
            self._used, self._answering, self._old = before
        assert self._reason is not None, "what fits is started"
        raise self._refused(left[0].model, self._reason)

    def _started(
        self, left: Sequence[CardShare], placed: Mapping[str, Placement], ended: tuple[str, ...]
    ) -> ChangeStep:
        """Return a step with these new engines, and take their cards."""
        self.placements.update(placed)
        self._used.update({name: cards.modules for name, cards in placed.items()})
        starting = [each for each in left if each.name in placed]
        models = tuple(dict.fromkeys(each.model for each in starting))
        answering = {model for _, model in self._answering}
        interrupted = tuple(model for model in models if ended and model not in answering)
        self._answering += [(each.name, each.model) for each in starting]
        return ChangeStep(
            models=models,
            ends_first=ended,
            starts=tuple(each.name for each in starting),
            interrupted=interrupted,
        )

    def _with_old(self, step: ChangeStep, left: Sequence[CardShare]) -> ChangeStep:
        """Return the step with the old engines that end after it.

        As many as were started, and all with the last new one of a model.
        """
        ending: list[str] = []
        for model in step.models:
            mine = [each.name for each in self._old if each.model == model]
            more = any(each.model == model for each in left)
            started = sum(
                1 for each in self._case.new if each.name in step.starts and each.model == model
            )
            if more:
                spare = started - len(step.ends_first)
                mine = mine[: max(spare, 0)]
            ending += mine
        self._end(ending)
        return replace(step, ends_after=tuple(ending))

    def _end(self, names: Sequence[str]) -> None:
        self._old = [each for each in self._old if each.name not in names]
        self._answering = [each for each in self._answering if each[0] not in names]
        for name in names:
            del self._used[name]


# --- cards of one machine among several services, each set chosen as for one ---


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
