"""Workloads from a trace or drawn: the same for the same arguments."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.past_requests import read_past
from gaudi_launch.extensions.bench.options import BenchOptions
from gaudi_launch.extensions.bench.run_file import BenchWorkload, WorkloadRequest

# the source of a workload without a file: input, output and seed follow it
MADE_UP = "made-up:"
# of a workload without a trace
REQUESTS = 40


def workload_of(options: BenchOptions) -> BenchWorkload:
    """Return the trace that the options name, else drawn requests.

    Raises as `from_trace`.
    """
    if options.trace:
        return from_trace(options)
    return made_up(options)


def from_trace(options: BenchOptions) -> BenchWorkload:
    """Return a trace at its arrival times, or at ``rate`` requests per second.

    ``requests`` keeps this number of first requests, ``seconds`` those of its first seconds. Raises
    LaunchError (USAGE) for a file that is not a trace, or when nothing is left.
    """
    past, rate = read_past(options.trace), options.rate
    rows = [WorkloadRequest(*request) for request in past.requests]
    if options.seconds is not None:
        rows = [row for row in rows if row.at <= options.seconds]
    rows = rows[: options.requests]
    own = BenchWorkload(tuple(rows), "own", options.concurrency, options.trace, notes=past.notes)
    if rate is None:
        return own
    if len(rows) > 1:
        own = own.hastened(rate * (rows[-1].at or 1.0) / (len(rows) - 1))
    return replace(own, arrivals="rate", rate=rate)


def made_up(options: BenchOptions) -> BenchWorkload:
    """Return requests with lengths drawn evenly from the ranges.

    With ``rate`` they arrive as a Poisson process, else each waits for a free slot of
    ``concurrency``.
    """
    rate, seed = options.rate, options.seed or 0
    chance, rows, at = random.Random(seed), [], 0.0
    for _ in range(options.requests or REQUESTS):
        rows.append(
            WorkloadRequest(at, chance.randint(*options.inputs), chance.randint(*options.outputs))
        )
        if rate is not None:
            at += chance.expovariate(rate)
    source = f"{MADE_UP}{_range(options.inputs)}:{_range(options.outputs)}:{seed}"
    arrivals = "closed" if rate is None else "rate"
    return BenchWorkload(tuple(rows), arrivals, options.most_at_once, source, rate=rate)


def _range(ends: tuple[int, int]) -> str:
    if ends[0] == ends[1]:
        return str(ends[0])
    return f"{ends[0]}-{ends[1]}"


def within(
    workload: BenchWorkload, longest: int | None, longest_input: int | None, least_input: int
) -> BenchWorkload:
    """Return the workload without requests that the server would refuse.

    Inputs below ``least_input`` (the tokens of the chat template alone) are raised to it. Raises
    LaunchError (USAGE) when none is left.
    """
    kept: Sequence[WorkloadRequest] = [
        replace(row, input=max(row.input, least_input))
        for row in workload.requests
        if (longest is None or max(row.input, least_input) + row.output <= longest)
        and (longest_input is None or row.input <= longest_input)
    ]
    if not kept:
        raise LaunchError(
            "measure.all_too_long", ExitCode.USAGE, longest=longest or longest_input or "-"
        )
    begin = kept[0].at
    rows = tuple(replace(row, at=row.at - begin) for row in kept)
    return replace(workload, requests=rows, left_out=len(workload.requests) - len(kept))
