"""Options of load and targets of ``estimate`` and ``recommend``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import partial

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import OptionRecord, text, value
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.buckets.past_requests import PastRequests, read_past
from gaudi_launch.core.planning.parse import number
from gaudi_launch.core.planning.parse_ranges import Ranges
from gaudi_launch.core.predict.load import (
    Load,
    LoadRequest,
    busiest_minute,
    from_ranges,
    from_trace,
    mean_rate,
)
from gaudi_launch.core.predict.targets import Targets

_PER = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?)"
_MOST_RATE = 1e7
_MOST_CLIENTS = 100_000_000
_PANEL = "Traffic and targets"
POISSON, OWN = "poisson", "trace"


def read_rate(flag: str, text: str) -> float:
    """Return requests per second. Raises LaunchError (USAGE)."""
    match = re.fullmatch(_NUMBER + r"(?:\s*/\s*([a-z]+))?", text.strip())
    value = 0.0
    if match:
        value = float(match.group(1)) / _PER.get(match.group(2) or "s", math.inf)
    if not 0 < value <= _MOST_RATE:
        raise LaunchError(
            "capacity.bad_rate", ExitCode.USAGE, found=text, most=f"{_MOST_RATE:,.0f}"
        )
    return value


def read_latency(flag: str, text: str) -> float:
    """Return the seconds of a latency. Raises LaunchError (USAGE)."""
    match = re.fullmatch(_NUMBER + r"\s*(ms|s)?", text.strip())
    value = 0.0
    if match:
        value = float(match.group(1)) / (1000 if match.group(2) == "ms" else 1)
    if not 0 < value < 1e6:
        raise LaunchError("capacity.bad_time", ExitCode.USAGE, flag=flag, found=text)
    return value


def read_percentile(flag: str, text: str) -> float:
    """Return a percentile from 1 to below 100. Raises LaunchError (USAGE)."""
    match = re.fullmatch(r"[pP]?([0-9]{1,2}(?:\.[0-9]{1,3})?)", text.strip())
    if not match or not 1 <= float(match.group(1)) < 100:
        raise LaunchError("capacity.bad_percentile", ExitCode.USAGE, found=text)
    return float(match.group(1))


@dataclass(frozen=True)
class LoadOptions(OptionRecord):
    """Load and past requests; empty where not given."""

    rate: float | None = value(
        "--rate",
        help="Total request rate: 50/s, 3000/m, 2e6/d.",
        panel=_PANEL,
        metavar="RATE",
        read=read_rate,
    )
    concurrency: int | None = value(
        "--concurrency",
        help="Clients that each wait for an answer, instead of --rate.",
        panel=_PANEL,
        metavar="N",
        read=partial(number, most=_MOST_CLIENTS),
    )
    trace: str = text(
        "--trace",
        help="Past requests: CSV, JSON lines, /metrics page or URL.",
        panel=_PANEL,
        metavar="FILE|URL",
    )
    arrivals: str = text(
        "--arrivals",
        help="poisson, or trace: the times of a trace with times (its default).",
        panel=_PANEL,
        metavar="HOW",
    )


@dataclass(frozen=True)
class TrafficOptions(LoadOptions):
    """Load, past requests and targets; empty where not given."""

    ttft: float | None = value(
        "--ttft",
        help="Time to first token: 1.5s, 800ms.",
        panel=_PANEL,
        metavar="TIME",
        read=read_latency,
    )
    tpot: float | None = value(
        "--tpot",
        help="Time per output token: 0.05, 50ms.",
        panel=_PANEL,
        metavar="TIME",
        read=read_latency,
    )
    e2e: float | None = value(
        "--e2e",
        help="Time to the last token: 20s.",
        panel=_PANEL,
        metavar="TIME",
        read=read_latency,
    )
    percentile: float = text(
        "--percentile",
        help="Percentage of requests within the targets.",
        panel=_PANEL,
        metavar="P",
        default="95",
        read=read_percentile,
    )


def targets_of(given: TrafficOptions) -> Targets:
    """Return the targets."""
    return Targets(given.ttft, given.tpot, given.percentile, given.e2e)


def demand_of(given: LoadOptions) -> tuple[float, int]:
    """Return requests per second and clients that wait; 0 where not given.

    Raises LaunchError (USAGE) for both at once.
    """
    if given.rate and given.concurrency:
        raise LaunchError("capacity.one_demand", ExitCode.USAGE)
    return given.rate or 0.0, given.concurrency or 0


def past_of(given: LoadOptions) -> PastRequests | None:
    """Return the past requests, at the recorded times where there are any.

    Return None without past requests. Raises LaunchError (USAGE).
    """
    wanted = given.arrivals
    if wanted not in ("", POISSON, OWN) or (wanted == OWN and not given.trace):
        raise LaunchError("capacity.arrivals", ExitCode.USAGE, found=wanted)
    if not given.trace:
        return None
    past = read_past(given.trace)
    if wanted == OWN and not past.timed:
        raise LaunchError("capacity.arrivals", ExitCode.USAGE, found=wanted)
    return replace(past, own_times=past.timed and wanted != POISSON)


def load_of(past: PastRequests | None, ranges: Ranges, notes: list[Message]) -> Load:
    """Return the load of past requests, else within ranges of lengths."""
    if past is not None:
        return _of_past(past, notes)
    inputs, outputs = ranges.input, ranges.output
    assert inputs is not None and outputs is not None, "both are needed without a trace"
    shown = {"input": f"{inputs[0]}-{inputs[1]}", "output": f"{outputs[0]}-{outputs[1]}"}
    notes.append(message("capacity.assume_ranges", **shown))
    return from_ranges(inputs, outputs)


def _of_past(past: PastRequests, notes: list[Message]) -> Load:
    id = "capacity.of_trace_own" if past.own_times else "capacity.of_trace"
    notes += [message(id, requests=len(past.requests)), *past.notes]
    if past.shared:
        tokens = sum(each.tokens for each in past.shared)
        share = tokens / sum(tokens for _, tokens, _ in past.requests)
        notes.append(message("capacity.shared_prefixes", percent=f"{100 * share:.0f}"))
    return from_trace(past.requests, past.own_times, shared=past.shared)


def rate_of_trace(past: list[LoadRequest] | None, notes: list[Message]) -> float:
    """Return the mean rate of past requests.

    Raises LaunchError (USAGE) without times.
    """
    found = mapped(mean_rate, past or None)
    if past is None or found is None:
        raise LaunchError("capacity.no_rate", ExitCode.USAGE)
    notes.append(message("capacity.rate_of_trace", rate=f"{found:.3g}"))
    busy = busiest_minute(past)
    if busy is not None:
        notes.append(message("capacity.busiest", rate=f"{busy:.3g}"))
    return found
