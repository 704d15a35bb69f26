"""The use case of ``gaudi-launch capacity``: read its options as a case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gaudi_launch.app.fields import switch, text, values
from gaudi_launch.app.traffic_options import (
    POISSON,
    Demand,
    TrafficOptions,
    TypedLengths,
    demand_of,
    past_of,
    rate_of_trace,
    targets_of,
    traffic_of,
)
from gaudi_launch.errors import ExitCode, LaunchError

if TYPE_CHECKING:
    from gaudi_launch.capacity.cards import CapacityCase
    from gaudi_launch.capacity.traffic import TrafficRequest
    from gaudi_launch.models.model import Model
    from gaudi_launch.planning.request import Request as PlanRequest

_MOST_NODES = 10_000_000

_TRAFFIC, _REPLICA, _SHOW = "Traffic and targets", "Replica", "Output"


@dataclass(frozen=True)
class CapacityOptions(TrafficOptions):
    """The options as typed; empty where not given."""

    arrivals: str = text(
        "--arrivals",
        help="poisson, or trace: recorded times, at the replica's rate.",
        panel=_TRAFFIC,
        metavar="HOW",
        default=POISSON,
    )
    inputs: str = text("-i", "--input", help="Input tokens.", panel=_TRAFFIC, metavar="RANGE")
    outputs: str = text("-o", "--output", help="Output tokens.", panel=_TRAFFIC, metavar="RANGE")
    cards: str = text(
        "-n", "--cards", help="Cards per replica: 1,2,4,8.", panel=_REPLICA, metavar="LIST"
    )
    cards_per_node: str = text(
        "--cards-per-node", help="Cards per node.", panel=_REPLICA, metavar="N"
    )
    accelerator: str = text(
        "--accelerator",
        help="gaudi2, gaudi3... (default: this machine's, else gaudi2).",
        panel=_REPLICA,
        metavar="NAME",
    )
    engine: str = text("--engine", help="Engine, as in 'fit'.", panel=_REPLICA, metavar="ENGINE")
    dtype: str = text("-d", "--dtype", help="The data type.", panel=_REPLICA, metavar="TYPE")
    length: str = text(
        "-l", "--max-model-len", help="Maximum of input plus output.", panel=_REPLICA, metavar="N"
    )
    requests: str = text(
        "-b", "--max-num-seqs", help="Concurrent requests per replica.", panel=_REPLICA, metavar="N"
    )
    constant: tuple[str, ...] = values(
        "--constant",
        help="A constant of the step-time model, in ms.",
        panel=_REPLICA,
        metavar="NAME=MS",
    )
    nodes: str = text(
        "--nodes",
        help="Also show the load that this many nodes carry.",
        panel=_SHOW,
        metavar="LIST",
    )
    force: bool = switch(
        "--force", help="Continue although the engine lacks the model's class.", panel=_SHOW
    )


def read(model: str, words: CapacityOptions) -> CapacityCase:
    """Return the case of these options. Raises LaunchError for an impossible one."""
    from gaudi_launch.app.fit import (
        check_sized_on_card,
        check_writes,
        data_types,
        engine_for,
        product_for,
        read_dtype,
        sized_model,
    )
    from gaudi_launch.capacity.cards import CapacityCase
    from gaudi_launch.performance.step_time import ONE_CARD_8B, constants_of
    from gaudi_launch.planning.fit import limits_of
    from gaudi_launch.planning.model_name import name_warning
    from gaudi_launch.planning.parse import if_given, number

    read_dtype(words.dtype)
    product = product_for(words.accelerator)
    targets = targets_of(words)
    constants = constants_of(words.constant)
    ONE_CARD_8B.with_constants(constants)
    demand = demand_of(words)
    per_node = if_given(number, "--cards-per-node", words.cards_per_node, 1, 64) or product.cards
    nodes = [number("--nodes", word, 1, _MOST_NODES) for word in _listed(words.nodes)]
    numbers = {number("-n", word, 1, 64) for word in _listed(words.cards)}
    if not numbers:
        numbers = {each for each in (1, 2, 4, 8) if each <= per_node}
    facts = sized_model(model)
    check_writes(facts)
    engine = engine_for(words.engine, facts, product.id, force=words.force)
    dtype = data_types(facts, words.dtype, engine)[0]
    check_sized_on_card(facts, dtype)
    if not words.trace and not (words.inputs and words.outputs):
        raise LaunchError("capacity.no_traffic", ExitCode.USAGE)
    found = past_of(words, usual=POISSON)
    notes = [*name_warning(model, facts)]
    if not (demand.rate or demand.clients):
        timed = found.past is not None and found.past.timed
        past = None
        if found.past is not None and timed:
            past = found.past.requests
        demand = Demand(rate=rate_of_trace(past, notes))
    request = _request(facts, words, found.past.requests if found.past is not None else None)
    made = traffic_of(found, TypedLengths(words.inputs, words.outputs))
    return CapacityCase(
        model=facts,
        dtype=dtype,
        accelerator=product,
        engine=engine,
        request=request,
        limits=limits_of(engine, request, facts),
        rate=demand.rate,
        targets=targets,
        traffic=made.traffic,
        cards=tuple(sorted(numbers)),
        cards_per_node=per_node,
        constants=constants,
        nodes=tuple(nodes),
        notes=(*notes, *made.notes),
        clients=demand.clients,
        traced=found.past is not None,
    )


def _listed(text: str) -> list[str]:
    return text.split(",") if text else []


def _request(
    model: Model, words: CapacityOptions, past: list[TrafficRequest] | None
) -> PlanRequest:
    """Return a replica's request: the given lengths, else those of the trace."""
    from gaudi_launch.app.fit import ServedLengths, request_for

    length, inputs = words.length, words.inputs
    if past and not (words.inputs or words.outputs):
        length = length or _length(past, model)
        longest = 0
        if length.isdigit():
            longest = min(max(tokens for _, tokens, _ in past), int(length) - 1)
        inputs = f"1,{longest}" if longest > 0 else ""
    return request_for(model, ServedLengths(length, words.requests, inputs, words.outputs))


def _length(past: list[TrafficRequest], model: Model) -> str:
    """Return a length for every request of the trace, within the model's limit."""
    from gaudi_launch.planning.lengths import BLOCK, round_up

    longest = round_up(max(tokens + output for _, tokens, output in past), BLOCK)
    return str(min(longest, round_up(model.max_position_embeddings or longest, BLOCK)))
