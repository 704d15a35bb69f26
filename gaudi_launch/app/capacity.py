"""The use case of ``gaudi-launch capacity``: read its options as a case."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_launch.app.fields import switch, text, values
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import Message, message

if TYPE_CHECKING:
    from gaudi_launch.capacity.cards import CapacityCase
    from gaudi_launch.capacity.traffic import Traffic, TrafficRequest
    from gaudi_launch.models.model import Model
    from gaudi_launch.planning.request import Request as PlanRequest

_PER = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:[eE][+]?[0-9]{1,2})?)"
_MOST_RATE = 1e7
_MOST_NODES = 10_000_000
_MOST_CLIENTS = 100_000_000


_TRAFFIC, _REPLICA, _SHOW = "Traffic and targets", "Replica", "Output"


@dataclass(frozen=True)
class CapacityOptions:
    """The options as typed; empty where not given."""

    rate: str = text(
        "--rate", help="Total request rate: 50/s, 3000/m, 2e6/d.", panel=_TRAFFIC, metavar="RATE"
    )
    trace: str = text(
        "--trace",
        help="Past requests: CSV, JSON lines, /metrics page or URL.",
        panel=_TRAFFIC,
        metavar="FILE|URL",
    )
    inputs: str = text("-i", "--input", help="Input tokens.", panel=_TRAFFIC, metavar="RANGE")
    outputs: str = text("-o", "--output", help="Output tokens.", panel=_TRAFFIC, metavar="RANGE")
    ttft: str = text(
        "--ttft", help="Time to first token: 1.5s, 800ms.", panel=_TRAFFIC, metavar="TIME"
    )
    tpot: str = text(
        "--tpot", help="Time per output token: 0.05, 50ms.", panel=_TRAFFIC, metavar="TIME"
    )
    e2e: str = text("--e2e", help="Time to the last token: 20s.", panel=_TRAFFIC, metavar="TIME")
    concurrency: str = text(
        "--concurrency",
        help="Clients that each wait for an answer, instead of --rate.",
        panel=_TRAFFIC,
        metavar="N",
    )
    percentile: str = text(
        "--percentile",
        help="Percentage of requests within the targets.",
        panel=_TRAFFIC,
        metavar="P",
        default="95",
    )
    arrivals: str = text(
        "--arrivals",
        help="poisson, or trace: recorded times, at the replica's rate.",
        panel=_TRAFFIC,
        metavar="HOW",
        default="poisson",
    )
    cards: str = text(
        "-n", "--cards", help="Cards per replica: 1,2,4,8.", panel=_REPLICA, metavar="LIST"
    )
    cards_per_node: str = text(
        "--cards-per-node", help="Cards per node.", panel=_REPLICA, metavar="N"
    )
    accelerator: str = text(
        "--accelerator",
        help="gaudi2, gaudi3... (default: this machine).",
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


def read(model: str, words: CapacityOptions, plot: Path | None) -> CapacityCase:
    """Return the case of these options. Raises LaunchError for an impossible one."""
    from gaudi_launch.app.fit import (
        check_sized_on_card,
        check_writes,
        engine_for,
        first_data_type,
        product_for,
        read_dtype,
        sized_model,
    )
    from gaudi_launch.app.unknown_model import unknown_model
    from gaudi_launch.buckets.past_requests import read_timed
    from gaudi_launch.capacity.cards import CapacityCase
    from gaudi_launch.capacity.search import Targets
    from gaudi_launch.performance.step_time import ONE_CARD_8B, constants_of
    from gaudi_launch.planning.fit import limits_of
    from gaudi_launch.planning.parse import number

    if plot is not None:
        from gaudi_launch.plotting import check_picture

        check_picture(plot)
    read_dtype(words.dtype)
    product = product_for(words.accelerator)
    targets = Targets(
        read_latency("--ttft", words.ttft) if words.ttft else None,
        read_latency("--tpot", words.tpot) if words.tpot else None,
        read_percentile(words.percentile),
        read_latency("--e2e", words.e2e) if words.e2e else None,
    )
    if words.arrivals not in ("poisson", "trace") or (
        words.arrivals == "trace" and not words.trace
    ):
        raise LaunchError("capacity.arrivals", ExitCode.USAGE, found=words.arrivals)
    constants = constants_of(words.constant)
    ONE_CARD_8B.with_constants(constants)
    if words.rate and words.concurrency:
        raise LaunchError("capacity.one_demand", ExitCode.USAGE)
    rate = read_rate(words.rate) if words.rate else None
    clients = (
        number("--concurrency", words.concurrency, 1, _MOST_CLIENTS) if words.concurrency else 0
    )
    per_node = (
        number("--cards-per-node", words.cards_per_node, 1, 64)
        if words.cards_per_node
        else product.cards
    )
    nodes = (
        tuple(number("--nodes", word, 1, _MOST_NODES) for word in words.nodes.split(","))
        if words.nodes
        else ()
    )
    numbers = (
        tuple(number("-n", word, 1, 64) for word in words.cards.split(",")) if words.cards else ()
    )
    facts = sized_model(model)
    check_writes(facts)
    engine = engine_for(words.engine, facts, product.id, force=words.force)
    dtype = first_data_type(facts, words.dtype, engine)
    check_sized_on_card(facts, dtype)
    if not words.trace and not (words.inputs and words.outputs):
        raise LaunchError("capacity.no_traffic", ExitCode.USAGE)
    past, timed = read_timed(words.trace) if words.trace else (None, False)
    if words.arrivals == "trace" and not timed:
        raise LaunchError("capacity.arrivals", ExitCode.USAGE, found=words.arrivals)
    unknown = unknown_model(model, facts)
    notes: list[Message] = [unknown] if unknown is not None else []
    if rate is None:
        rate = 0.0 if clients else rate_of_trace(past if timed else None, notes)
    request = _request(facts, words, past)
    return CapacityCase(
        model=facts,
        dtype=dtype,
        accelerator=product,
        engine=engine,
        request=request,
        limits=limits_of(engine, request, facts),
        rate=rate,
        targets=targets,
        traffic=traffic_of(past, words, notes),
        cards=tuple(sorted(set(numbers))) or tuple(n for n in (1, 2, 4, 8) if n <= per_node),
        cards_per_node=per_node,
        constants=constants,
        nodes=nodes,
        notes=tuple(notes),
        clients=clients,
        traced=past is not None,
    )


def _request(
    model: Model, words: CapacityOptions, past: list[TrafficRequest] | None
) -> PlanRequest:
    """Return a replica's request: the given lengths, else those of the trace."""
    from gaudi_launch.app.fit import ServedLengths, request_for

    length, inputs = words.length, words.inputs
    if past and not (words.inputs or words.outputs):
        length = length or _length(past, model)
        longest = (
            min(max(tokens for _, tokens, _ in past), int(length) - 1) if length.isdigit() else 0
        )
        inputs = f"1,{longest}" if longest > 0 else ""
    return request_for(model, ServedLengths(length, words.requests, inputs, words.outputs))


def read_rate(text: str) -> float:
    """Return requests per second. Raises LaunchError (USAGE)."""
    match = re.fullmatch(_NUMBER + r"(?:\s*/\s*([a-z]+))?", text.strip())
    value = float(match.group(1)) / _PER.get(match.group(2) or "s", math.inf) if match else 0.0
    if not 0 < value <= _MOST_RATE:
        raise LaunchError(
            "capacity.bad_rate", ExitCode.USAGE, found=text, most=f"{_MOST_RATE:,.0f}"
        )
    return value


def read_latency(flag: str, text: str) -> float:
    """Return the seconds of a latency. Raises LaunchError (USAGE)."""
    match = re.fullmatch(_NUMBER + r"\s*(ms|s)?", text.strip())
    value = float(match.group(1)) / (1000 if match.group(2) == "ms" else 1) if match else 0.0
    if not 0 < value < 1e6:
        raise LaunchError("capacity.bad_time", ExitCode.USAGE, flag=flag, found=text)
    return value


def read_percentile(text: str) -> float:
    """Return a percentile from 1 to below 100. Raises LaunchError (USAGE)."""
    match = re.fullmatch(r"[pP]?([0-9]{1,2}(?:\.[0-9]{1,3})?)", text.strip())
    if not match or not 1 <= float(match.group(1)) < 100:
        raise LaunchError("capacity.bad_percentile", ExitCode.USAGE, found=text)
    return float(match.group(1))


def rate_of_trace(past: list[TrafficRequest] | None, notes: list[Message]) -> float:
    """Return the mean rate of past requests.

    Raises LaunchError (USAGE) without times.
    """
    from gaudi_launch.capacity.traffic import busiest_minute, mean_rate

    found = mean_rate(past) if past else None
    if past is None or found is None:
        raise LaunchError("capacity.no_rate", ExitCode.USAGE)
    notes.append(message("capacity.rate_of_trace", rate=f"{found:.3g}"))
    busy = busiest_minute(past)
    if busy is not None:
        notes.append(message("capacity.busiest", rate=f"{busy:.3g}"))
    return found


def _length(past: list[TrafficRequest], model: Model) -> str:
    """Return a length for every request of the trace, within the model's limit."""
    from gaudi_launch.planning.lengths import BLOCK, round_up

    longest = round_up(max(tokens + output for _, tokens, output in past), BLOCK)
    return str(min(longest, round_up(model.max_position_embeddings or longest, BLOCK)))


def traffic_of(
    past: list[TrafficRequest] | None, words: CapacityOptions, notes: list[Message]
) -> Traffic:
    """Return the traffic of past requests, or of the ranges -i and -o."""
    from gaudi_launch.capacity.traffic import from_ranges, from_trace
    from gaudi_launch.planning.parse import ranges

    if past is None:
        asked = ranges(words.inputs, words.outputs)
        one, other = asked.input, asked.output
        assert one is not None and other is not None, "both are needed without a trace"
        notes.append(
            message(
                "capacity.assume_ranges",
                input=f"{one[0]}-{one[1]}",
                output=f"{other[0]}-{other[1]}",
            )
        )
        return from_ranges(one, other)
    own = words.arrivals == "trace"
    made = from_trace(past, own)
    id = "capacity.of_trace_own" if own else "capacity.of_trace"
    notes.append(message(id, requests=len(past), used=len(made.requests)))
    return made
