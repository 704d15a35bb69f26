"""The number of cards per replica with the smallest fleet for a traffic.

Its targets are met; the assumptions are listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gaudi_launch.capacity.replica import Replica, Unfit, replica
from gaudi_launch.capacity.search import CEILING, Curve, Fleet, Targets, fleet_for, simulate_curve
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.accelerators import Accelerator
from gaudi_launch.messages import Message, message
from gaudi_launch.models.model import Model
from gaudi_launch.planning.engine import Engine, Limits
from gaudi_launch.planning.fit import divided
from gaudi_launch.planning.request import Request


@dataclass(frozen=True)
class CapacityCase:
    """A checked request.

    ``limits`` are the lengths that ``engine`` serves for ``request``.
    """

    model: Model
    dtype: str
    accelerator: Accelerator
    engine: Engine
    request: Request
    limits: Limits
    rate: float
    targets: Targets
    traffic: Traffic
    cards: tuple[int, ...]
    cards_per_node: int
    constants: Mapping[str, str]
    nodes: tuple[int, ...]
    notes: tuple[Message, ...]


@dataclass(frozen=True)
class CardsChoice:
    """One number of cards per replica: curve and fleet, or the reason without."""

    cards: int
    replica: Replica | Unfit
    curve: Curve | None
    fleet: Fleet | None
    why_not: Message | None


@dataclass(frozen=True)
class CapacityResult:
    """Every choice, the one with the fewest cards, and the assumptions."""

    case: CapacityCase
    choices: tuple[CardsChoice, ...]
    chosen: CardsChoice | None
    assumptions: tuple[Message, ...]


def solve(case: CapacityCase) -> CapacityResult:
    """Simulate each number of cards and choose the one with the fewest cards in all."""
    choices = tuple(_choice(case, n) for n in case.cards)
    able = [choice for choice in choices if choice.fleet is not None]
    chosen = min(able, key=lambda c: (c.fleet.cards, c.fleet.nodes, c.cards) if c.fleet else (), default=None)
    return CapacityResult(case, choices, chosen, _assumptions(case, chosen or _simulated(choices)))


def _simulated(choices: tuple[CardsChoice, ...]) -> CardsChoice | None:
    return next((choice for choice in reversed(choices) if choice.curve is not None), None)


def _choice(case: CapacityCase, cards: int) -> CardsChoice:
    try:
        ask, rules = divided(case.engine, case.request, case.accelerator, case.model, cards, case.dtype)
    except LaunchError as error:
        if error.exit_code == ExitCode.USAGE:
            raise
        return CardsChoice(cards, Unfit(cards, error.text), None, None, error.text)
    found = replica(
        case.model,
        cards,
        case.dtype,
        case.accelerator,
        ask,
        rules,
        case.traffic,
        lambda cost: cost.with_constants(case.constants),
        case.engine.innermost.scheduling,
    )
    if isinstance(found, Unfit):
        return CardsChoice(cards, found, None, None, found.reason)
    curve = simulate_curve(case.traffic, found.limits, found.cost, case.targets.percentile)
    if curve is None:
        return CardsChoice(
            cards, found, None, None, message("capacity.takes_none", length=case.limits.max_model_len)
        )
    fleet = fleet_for(curve, case.targets, case.rate, cards, case.cards_per_node)
    idle = curve.loads[0]
    why = message("capacity.unreachable", ttft=f"{idle.ttft:.3g}", tpot=f"{1000 * idle.tpot:.3g}")
    return CardsChoice(cards, found, curve, fleet, None if fleet else why)


def _assumptions(case: CapacityCase, choice: CardsChoice | None) -> tuple[Message, ...]:
    limits = case.limits
    words = {"engine": case.engine.identity.label, "requests": limits.max_num_seqs, "length": limits.max_model_len}
    said = [*case.notes, message("capacity.assume_served", **words)]
    if choice is not None and isinstance(choice.replica, Replica) and choice.curve is not None:
        cost = choice.replica.cost
        shown = ", ".join(f"{name} {value:.3g}" for name, value in cost.constants().items())
        said.append(message("capacity.assume_cost", cards=choice.cards, basis=cost.basis, constants=shown))
        said += choice.replica.notes
        said.append(message("capacity.assume_padding", percent=f"{100 * choice.replica.padding:.1f}"))
        said.append(message("capacity.assume_memory", blocks=choice.replica.limits.num_blocks))
        if choice.cards > case.cards_per_node:
            said.append(message("capacity.assume_links"))
        if choice.curve.refused:
            said.append(
                message(
                    "capacity.refused",
                    percent=f"{100 * choice.curve.refused:.1f}",
                    length=case.limits.max_model_len,
                )
            )
    said += [message("capacity.assume_split"), message("capacity.assume_ceiling", percent=f"{100 * CEILING:.0f}")]
    return (*said, message("capacity.assume_engine"), message("capacity.assume_no_spare"))
