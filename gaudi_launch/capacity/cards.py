"""The number of cards per replica that makes the smallest fleet.

Its targets are met; the assumptions are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gaudi_launch.capacity.planned_replica import (
    ReplicaSetup,
    evidence_of,
    planned_replica,
    request_delay,
)
from gaudi_launch.capacity.replica import Replica, Unfit
from gaudi_launch.capacity.search import (
    CEILING,
    Curve,
    Fleet,
    Targets,
    fleet_for,
    rate_within,
    simulate_clients,
    simulate_curve,
)
from gaudi_launch.capacity.traffic import Traffic
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.accelerators import Accelerator
from gaudi_launch.messages import Message, message
from gaudi_launch.models.model import Model
from gaudi_launch.optional import mapped
from gaudi_launch.performance.evidence import Evidence
from gaudi_launch.planning.engine import Engine, Limits
from gaudi_launch.planning.request import Request

# what -b may be where it is not given; the engine's own default is tried as well
_BATCHES = (16, 32, 64, 128, 256)

Progress = Callable[[int, int], None]
"""Receives how many steps of the work are done, of how many."""


@dataclass(frozen=True)
class CapacityCase:
    """The question, read and checked.

    ``limits`` are the lengths that ``engine`` serves for ``request``. ``rate`` is in requests per
    second; with ``clients`` it is 0, and that many clients wait for their answers. ``traced``: the
    traffic is that of past requests, whose lengths ``request`` has only as ranges.
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
    clients: int = 0
    traced: bool = False

    @property
    def demand(self) -> float:
        """Return requests per second, or clients."""
        return float(self.clients or self.rate)


@dataclass(frozen=True)
class CardsChoice:
    """One number of cards per replica: curve and fleet, or the reason without."""

    cards: int
    replica: Replica | Unfit
    curve: Curve | None
    fleet: Fleet | None
    why_not: Message | None
    fewest: Fleet | None = None
    most: Fleet | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True)
class CapacityResult:
    """Every choice, the one with the fewest cards, and the assumptions."""

    case: CapacityCase
    choices: tuple[CardsChoice, ...]
    chosen: CardsChoice | None
    assumptions: tuple[Message, ...]


def solve(case: CapacityCase, progress: Progress | None = None) -> CapacityResult:
    """Simulate each number of cards and choose the one with the fewest cards in all."""
    show = progress or (lambda done, total: None)
    choices: list[CardsChoice] = []
    show(0, len(case.cards))
    for cards in case.cards:
        choices.append(_choice(case, cards))
        show(len(choices), len(case.cards))
    able = [choice for choice in choices if choice.fleet is not None]
    chosen = min(able, key=_size, default=None)
    return CapacityResult(
        case, tuple(choices), chosen, _assumptions(case, chosen or _simulated(choices))
    )


def _size(choice: CardsChoice) -> tuple[int, int, int]:
    """Return cards and nodes in all, and cards of a replica: the least is chosen."""
    assert choice.fleet is not None, "a choice without a fleet is not compared"
    return (choice.fleet.cards, choice.fleet.nodes, choice.cards)


def _simulated(choices: list[CardsChoice]) -> CardsChoice | None:
    return next((choice for choice in reversed(choices) if choice.curve is not None), None)


def _choice(case: CapacityCase, cards: int) -> CardsChoice:
    try:
        found = _replica(case, cards)
    except LaunchError as error:
        if error.exit_code == ExitCode.USAGE:
            raise
        return CardsChoice(cards, Unfit(cards, error.text), None, None, error.text)
    if isinstance(found, Unfit):
        return CardsChoice(cards, found, None, None, found.reason)
    curve = _curve(case, found)
    if curve is None:
        why = message("capacity.takes_none", length=case.limits.max_model_len)
        return CardsChoice(cards, found, None, None, why)
    fleet = fleet_for(curve, case.targets, case.demand, cards, case.cards_per_node)
    why_not = None
    if fleet is None:
        idle = curve.loads[0]
        why_not = message(
            "capacity.unreachable", ttft=f"{idle.ttft:.3g}", tpot=f"{1000 * idle.tpot:.3g}"
        )
    evidence = _evidence(case, found, curve, fleet)
    fast, slow = (
        fleet_for(curve.faster(factor), case.targets, case.demand, cards, case.cards_per_node)
        for factor in (evidence.high, evidence.low)
    )
    return CardsChoice(cards, found, curve, fleet, why_not, fast, slow, evidence)


def _replica(case: CapacityCase, cards: int) -> Replica | Unfit:
    """Return the replica of the batch that carries most within the targets.

    Its batch is the requested one, or the plan's default where no other is better.
    """
    found = _of_request(case, case.request, cards)
    if isinstance(found, Unfit) or case.request.max_num_seqs is not None:
        return found
    best, most = found.limits.max_num_seqs, -1.0
    traffic = _traffic(case, found)
    for batch in sorted({*_BATCHES, found.limits.max_num_seqs}):
        limits = replace(found.limits, max_num_seqs=batch)
        if batch > limits.max_num_batched_tokens:
            continue
        percentile = case.targets.percentile
        curve = simulate_curve(
            traffic, limits, found.cost, percentile, delay=request_delay(), quick=True
        )
        carried = mapped(lambda each: rate_within(each, case.targets), curve)
        # a larger batch has to be worth its graphs
        if carried is not None and carried > 1.02 * most:
            best, most = batch, carried
    if best == found.limits.max_num_seqs:
        return found
    other = _of_request(case, replace(case.request, max_num_seqs=best), cards)
    if isinstance(other, Unfit):
        return found
    return other


def _of_request(case: CapacityCase, request: Request, cards: int) -> Replica | Unfit:
    asked = ReplicaSetup(
        case.engine,
        request,
        case.accelerator,
        case.model,
        cards,
        case.dtype,
        constants=case.constants,
        traced=case.traced,
    )
    return planned_replica(asked, case.traffic)


def _curve(case: CapacityCase, found: Replica) -> Curve | None:
    percentile, traffic = case.targets.percentile, _traffic(case, found)
    if case.clients:
        return simulate_clients(
            traffic, found.limits, found.cost, percentile, delay=request_delay()
        )
    return simulate_curve(traffic, found.limits, found.cost, percentile, delay=request_delay())


def _traffic(case: CapacityCase, found: Replica) -> Traffic:
    """Return the traffic with what the replica's prefix cache has of it."""
    if not case.engine.innermost.caches_prefixes(case.request, case.model):
        return case.traffic
    return case.traffic.with_cache(found.limits.num_blocks * found.limits.block_size)


def _evidence(case: CapacityCase, found: Replica, curve: Curve, fleet: Fleet | None) -> Evidence:
    """Return the published figures near the load of one replica.

    They come with the range of their speeds.
    """
    load = curve.loads[-1]
    if fleet is not None:
        # the first load at or above that of the fleet
        amount = case.demand / fleet.replicas
        found_at = (
            at for at, each in zip(curve.loads, curve.amounts, strict=True) if each >= amount
        )
        load = next(found_at, load)
    return evidence_of(
        found, case.traffic, load.inside, measured=found.cards <= case.cards_per_node
    )


def _assumptions(case: CapacityCase, choice: CardsChoice | None) -> tuple[Message, ...]:
    limits = case.limits
    seqs = limits.max_num_seqs
    if choice is not None and isinstance(choice.replica, Replica):
        seqs = choice.replica.limits.max_num_seqs
    words = {"engine": case.engine.identity.label, "requests": seqs, "length": limits.max_model_len}
    assumed = [*case.notes, message("capacity.assume_served", **words)]
    if choice is not None and isinstance(choice.replica, Replica) and choice.curve is not None:
        cost = choice.replica.cost
        shown = ", ".join(f"{name} {value:.3g}" for name, value in cost.constants().items())
        assumed.append(
            message("capacity.assume_cost", cards=choice.cards, basis=cost.basis, constants=shown)
        )
        assumed += choice.replica.notes
        assumed.append(
            message("capacity.assume_padding", percent=f"{100 * choice.replica.padding:.1f}")
        )
        assumed.append(message("capacity.assume_memory", blocks=choice.replica.limits.num_blocks))
        if choice.cards > case.cards_per_node:
            assumed.append(message("capacity.assume_links"))
        if choice.curve.refused:
            assumed.append(
                message(
                    "capacity.refused",
                    percent=f"{100 * choice.curve.refused:.1f}",
                    length=case.limits.max_model_len,
                )
            )
        assumed.append(_scheduling(choice.replica))
        if choice.evidence is not None:
            assumed.append(_band_note(choice.evidence))
    assumed.append(message("capacity.assume_split"))
    if not case.clients:
        assumed.append(message("capacity.assume_ceiling", percent=f"{100 * CEILING:.0f}"))
    return (*assumed, message("capacity.assume_no_spare"))


def _scheduling(found: Replica) -> Message:
    limits = found.limits
    delay = f"{1000 * request_delay():.0f}"
    if not limits.mixed_steps:
        return message("capacity.assume_v0", prompts=limits.max_num_prefill_seqs, delay=delay)
    budget = limits.max_num_batched_tokens
    return message(
        "capacity.assume_v1", tokens=budget, prompts=limits.max_num_prefill_seqs, delay=delay
    )


def _band_note(evidence: Evidence) -> Message:
    shares = {"low": f"{evidence.low:.2f}", "high": f"{evidence.high:.2f}"}
    if not evidence.near:
        return message("capacity.assume_far", **shares)
    return message("capacity.assume_band", points=evidence.points, **shares)
