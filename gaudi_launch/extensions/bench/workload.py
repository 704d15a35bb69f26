"""Workloads from a trace or drawn: the same for the same arguments."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.past_requests import read_workload
from gaudi_launch.extensions.bench.run_file import BenchWorkload, WorkloadRequest

# the source of a workload without a file: input, output and seed follow it
MADE_UP = "made-up:"
# clients without a rate and a number of them
CONCURRENCY = 4


@dataclass(frozen=True)
class BenchNumbers:
    """The load in numbers.

    Lengths are (least, most) tokens, ``rate`` is in requests per second.

    ``seed`` names the workload; the texts of its requests are drawn by ``texts``.
    """

    input: tuple[int, int]
    output: tuple[int, int]
    rate: float | None
    concurrency: int | None
    requests: int | None
    seconds: float | None
    seed: int
    texts: int
    timeout: float

    @property
    def fixed_lengths(self) -> bool:
        """Report whether all requests have the same lengths."""
        return self.input[0] == self.input[1] and self.output[0] == self.output[1]

    @property
    def most_at_once(self) -> int | None:
        """Return the limit of concurrent requests; without a rate there is always one."""
        if self.rate is not None:
            return self.concurrency
        return self.concurrency or CONCURRENCY


def from_trace(
    source: str,
    *,
    rate: float | None,
    requests: int | None,
    seconds: float | None,
    concurrency: int | None,
) -> BenchWorkload:
    """Return a trace at its arrival times, or at ``rate`` requests per second.

    ``requests`` keeps this number of first requests, ``seconds`` those of its first seconds. Raises
    LaunchError (USAGE) for a file that is not a trace, or when nothing is left.
    """
    rows = [WorkloadRequest(at, tokens, made) for at, tokens, made in read_workload(source)]
    if seconds is not None:
        rows = [row for row in rows if row.at <= seconds]
    if requests is not None:
        rows = rows[:requests]
    if rate is not None and len(rows) > 1:
        span = rows[-1].at or 1.0
        scale = (len(rows) - 1) / rate / span
        rows = [replace(row, at=row.at * scale) for row in rows]
    if rate is None:
        return BenchWorkload(tuple(rows), "own", concurrency, source)
    return BenchWorkload(tuple(rows), "rate", concurrency, source, rate=rate)


def made_up(
    *,
    requests: int,
    input: tuple[int, int],
    output: tuple[int, int],
    rate: float | None,
    concurrency: int | None,
    seed: int = 0,
) -> BenchWorkload:
    """Return requests with lengths drawn evenly from the ranges.

    With ``rate`` they arrive as a Poisson process, else each waits for a free slot of
    ``concurrency``.
    """
    chance = random.Random(seed)
    rows, at = [], 0.0
    for _ in range(requests):
        rows.append(WorkloadRequest(at, chance.randint(*input), chance.randint(*output)))
        if rate is not None:
            at += chance.expovariate(rate)
    source = f"{MADE_UP}{_range(input)}:{_range(output)}:{seed}"
    if rate is None:
        return BenchWorkload(tuple(rows), "closed", concurrency, source)
    return BenchWorkload(tuple(rows), "rate", concurrency, source, rate=rate)


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
