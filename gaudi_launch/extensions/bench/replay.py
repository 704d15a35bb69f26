"""Send a workload at its times and record the result of every request.

Answers never delay arrivals: a request that has to wait for a slot (``concurrency``) or for our
client waits on the clock of its arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from gaudi_launch.extensions.bench import protocols, server
from gaudi_launch.extensions.bench.client import Client, ServerError
from gaudi_launch.extensions.bench.run_file import BenchWorkload, Sample, WorkloadRequest


@dataclass
class Going:
    """The progress of a run."""

    total: int
    sent: int = 0
    done: int = 0
    failed: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class Way:
    """The form of requests: model, API, tokens per text, seeds, early stop."""

    served: server.ServerFacts
    form: protocols.Form
    ruler: server.Ruler
    ignore_eos: bool
    texts: int = 0


async def replay(
    client: Client,
    workload: BenchWorkload,
    way: Way,
    going: Callable[[Going], None],
    stop: asyncio.Event,
) -> list[Sample]:
    """Send every request of the workload.

    After ``stop`` no more are sent and those in progress are cancelled.

    Returns the samples of those that were sent, by arrival.
    """
    state = Going(len(workload.requests))
    places = None
    if workload.concurrency is not None:
        places = asyncio.Semaphore(workload.concurrency)
    samples: dict[int, Sample] = {}
    began = time.perf_counter()

    async def one(number: int, wanted: WorkloadRequest) -> None:
        closed = workload.arrivals == "closed"
        async with places if places is not None else contextlib.nullcontext():
            at = time.perf_counter() - began if closed else wanted.at
            state.sent += 1
            going(state)
            sample = await _ask(client, way, wanted, at, began, number)
        samples[number] = sample
        state.done += 1
        state.failed += not sample.ok
        state.tokens += sample.output
        going(state)

    tasks: set[asyncio.Task[None]] = set()

    async def send_all() -> None:
        for number, wanted in enumerate(workload.requests):
            wait = wanted.at - (time.perf_counter() - began)
            # a wait of 0 still lets answers be read
            await asyncio.sleep(max(0.0, wait))
            tasks.add(asyncio.create_task(one(number, wanted)))
        await asyncio.gather(*tasks)

    sending = asyncio.create_task(send_all())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({sending, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in (sending, stopping, *tasks):
        task.cancel()
    await asyncio.gather(sending, stopping, *tasks, return_exceptions=True)
    if sending.done() and not sending.cancelled() and (problem := sending.exception()) is not None:
        raise problem
    return [samples[number] for number in sorted(samples)]


async def _ask(
    client: Client, way: Way, wanted: WorkloadRequest, at: float, began: float, number: int
) -> Sample:
    words = way.ruler.words(wanted.input)
    prompt = server.text(words, way.texts * 1_000_003 + number)
    question = protocols.ask_one(prompt, wanted.output, ignore_eos=way.ignore_eos)
    sent = time.perf_counter() - began
    try:
        answer = await protocols.stream(client, way.form, question, way.served.model)
    except ServerError as error:
        end = time.perf_counter() - began
        return Sample(
            at,
            sent,
            wanted.input,
            wanted.output,
            last=end,
            error=error.short,
            detail=error.detail[:200],
        )
    times = [sent + piece for piece in answer.pieces] or [sent + answer.seconds]
    gaps = tuple(later - earlier for earlier, later in pairwise(times))
    return Sample(
        at,
        sent,
        wanted.input,
        wanted.output,
        first=times[0],
        last=times[-1],
        gaps=gaps,
        input=answer.input,
        output=answer.tokens,
    )
