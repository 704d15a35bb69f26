"""Simulate continuous batching: requests in, weighted step shapes out.

Engines that schedule as V1 are `gaudi_launch.core.predict.mixed_steps`; the rest of this module is
the scheduling of the V0 engines (HabanaAI/vllm-fork@aice/v1.21.0:vllm/core/scheduler.py): prefill
first, first come first served, prompts of one step padded to a rectangle of complete blocks within
the token budget; decode otherwise; when the KV cache is full the youngest sequence is preempted and
prefills again. No chunked prefill, no prefix caching. Steps take the unpadded time, so padding does
not feed back into batch sizes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.load import CachedRequests
from gaudi_launch.core.predict.mixed_steps import MixedRun
from gaudi_launch.core.predict.step_time import StepTime
from gaudi_launch.core.predict.weighted_sum import weighted_sum

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]


# number of decode steps from which arrays are faster than a loop
_ARRAYS_PAY = 100
# up to this many values for each key it is faster to count all than to sort the keys
_DENSE = 16


@dataclass(frozen=True, eq=False)
class Weighted:
    """Distinct shapes of one phase, by batch and size.

    ``size`` is the longest prompt's tokens, or blocks; ``weight`` the number of steps.
    """

    batch: Integers
    size: Integers
    weight: Floats

    def __len__(self) -> int:
        return len(self.batch)


@dataclass(frozen=True, eq=False)
class Continued:
    """Distinct prefill shapes after cached tokens, one prompt each.

    ``query`` tokens, ``context`` blocks and ``weight`` (steps).
    """

    query: Integers
    context: Integers
    weight: Floats

    def __len__(self) -> int:
        return len(self.query)

    def milliseconds(self, cost: StepTime) -> float:
        """Return the time of all of them without any bucket padding."""
        if not len(self):
            return 0.0
        return weighted_sum(self.weight, cost.in_blocks(1, self.query, self.context))


def none_continued() -> Continued:
    """Return continued shapes without any element."""
    import numpy as np

    return Continued(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))


@dataclass(frozen=True, eq=False)
class Shapes:
    """All steps of a workload: prefill shapes in tokens, decode shapes in blocks."""

    prompt: Weighted
    decode: Weighted
    continued: Continued = field(default_factory=none_continued)

    def milliseconds(self, cost: StepTime) -> float:
        """Return the time of all steps without any bucket padding."""
        prompt = weighted_sum(self.prompt.weight, cost.prefill(self.prompt.batch, self.prompt.size))
        decode = weighted_sum(self.decode.weight, cost.decode(self.decode.batch, self.decode.size))
        return prompt + decode + self.continued.milliseconds(cost)


@dataclass(frozen=True, eq=False)
class Times:
    """The time of arrival, first token and last token of each request.

    In seconds of the engine's clock, in the order of the requests. NaN: refused (all three), or
    lost in a preemption (the last). ``output``: generated tokens. In a closed loop a request
    arrives when it is admitted.
    """

    came: Floats
    first: Floats
    done: Floats
    output: Integers


def simulate_cached(
    sent: CachedRequests,
    limits: EngineLimits,
    cost: StepTime,
    *,
    rate: float = 1.0,
    concurrency: int | None = None,
    delay: float = 0.0,
) -> Times:
    """Return the times of each request as `serve` does, with a prefix cache.

    Pure, and cached: a search compares setups on a part, then on all, and needs the same run
    several times. A run in which no request waited for a place or for blocks is the same with any
    number of them that it would not have exceeded.
    """
    seqs, blocks = limits.max_num_seqs, limits.physical_blocks
    longest = min(limits.max_model_len, blocks * limits.block_size)
    same = replace(limits, max_num_seqs=1, num_blocks=1, cache_blocks=None)
    roomy = (sent, same, cost, rate, concurrency, delay, longest)
    exact = (*roomy, seqs, blocks)
    known = _runs.get(roomy)
    if known is None or known.seqs > seqs or known.blocks > blocks:
        known = _runs.get(exact)
    if known is not None:
        return known.times
    if len(_runs) >= _MOST_KEPT:
        _runs.pop(next(iter(_runs)))
    if limits.mixed_steps:
        mixed = MixedRun(limits, cost, concurrency)
        mixed.serve(sent.requests, rate, delay, sent.cached)
        found = _KeptRun(mixed.most_running, blocks - mixed.least_free, _times_of(mixed))
        _runs[exact if mixed.full else roomy] = found
    else:
        run = _Run(limits, cost, concurrency)
        run.serve(sent.requests, rate, delay)
        found = _runs[exact] = _KeptRun(seqs, blocks, _times_of(run))
    return found.times


@dataclass(frozen=True, eq=False)
class _KeptRun:
    """The times of a run, with the places and blocks that it used at most."""

    seqs: int
    blocks: int
    times: Times


_runs: dict[tuple[Any, ...], _KeptRun] = {}
_MOST_KEPT = 64


def serve(
    requests: Sequence[tuple[float, int, int]],
    limits: EngineLimits,
    cost: StepTime,
    *,
    rate: float = 1.0,
    concurrency: int | None = None,
    delay: float = 0.0,
) -> tuple[Shapes, Times]:
    """Return the shapes of serving ``requests``, and the times of each.

    They are sorted by time, each (arrival seconds, input tokens, output tokens). ``rate`` speeds
    the arrivals up; ``concurrency`` ignores arrivals and keeps that number of requests in the
    engine; ``delay``: seconds that the API server and the client add to each request before the
    engine has it. A request that the engine refuses (prompt over max_model_len or the token budget)
    is left out, output is cut at max_model_len.
    """
    if limits.mixed_steps:
        mixed = MixedRun(limits, cost, concurrency)
        mixed.serve(requests, rate, delay)
        return _of_mixed(mixed), _times_of(mixed)
    run = _Run(limits, cost, concurrency)
    shapes = run.serve(requests, rate, delay)
    return shapes, _times_of(run)


def _times_of(run: MixedRun | _Run) -> Times:
    import numpy as np

    return Times(
        np.asarray(run.came), np.asarray(run.first), np.asarray(run.done), np.asarray(run.made)
    )


class _Sequence:
    """A request that decodes.

    Before its step s the cache contains ``tokens + 1 + s - start`` of its tokens.
    """

    __slots__ = ("end", "number", "output", "start", "tokens")

    def __init__(self, tokens: int, output: int, start: int, number: int) -> None:
        self.number = number
        self.tokens = tokens
        self.output = output
        self.start = start
        # prefill makes the first output token, each decode step one more
        self.end = start + output - 1


# time, tokens, output and number of each request
_Arrivals = deque[tuple[float, int, int, int]]


class _Run:
    """One engine while it serves.

    Decode steps are numbered; what happens at a step is found by its number.
    """

    def __init__(self, limits: EngineLimits, cost: StepTime, concurrency: int | None) -> None:
        self.limits = limits
        self.cost = cost
        self.closed = concurrency is not None
        self.most = min(concurrency or limits.max_num_seqs, limits.max_num_seqs)
        self.waiting: deque[tuple[int, int, int]] = deque()  # tokens, output, number of the request
        self.step = 0
        self.blocks = 0
        self.running: dict[_Sequence, None] = {}  # in order of admission
        # how many running sequences open a new block at steps of each residue, and who ends at
        # which step
        self.opening = [0] * limits.block_size
        self.ending: dict[int, list[_Sequence]] = {}
        self.prefills: list[int] = []
        self.decodes: list[int] = []
        self.came: list[float] = []
        self.first: list[float] = []
        self.done: list[float] = []
        self.made: list[int] = []

    def serve(
        self, requests: Sequence[tuple[float, int, int]], rate: float, delay: float = 0.0
    ) -> Shapes:
        limits = self.limits
        arrivals = self._arrivals(requests, rate, delay)
        self.came, self.first, self.done = ([float("nan")] * len(requests) for _ in range(3))
        self.made = [0] * len(requests)
        now = 0.0
        while arrivals or self.waiting or self.running:
            self._admit(arrivals, now, delay)
            batch = self._take()
            if batch:
                now += self._prefill(batch)
                self._spoke(batch, now)
            elif self.running:
                until = float("inf")
                if arrivals and not self.closed:
                    until = arrivals[0][0]
                now = self._decode(now, until)
            else:
                now = arrivals[0][0]
        blocks = limits.num_blocks + 1
        return Shapes(_count(self.prefills, limits.max_model_len + 1), _count(self.decodes, blocks))

    def _arrivals(
        self, requests: Sequence[tuple[float, int, int]], rate: float, delay: float
    ) -> _Arrivals:
        """Return the requests that the engine accepts: time, tokens, output and number.

        The output ends where the context or the KV cache is full.
        """
        limits = self.limits
        longest = min(limits.max_model_len - 1, limits.longest_query)
        capacity = limits.num_blocks * limits.block_size
        found: _Arrivals = deque()
        for number, (time, tokens, output) in enumerate(requests):
            if 0 < tokens <= longest and output > 0 and tokens < capacity:
                most = min(limits.max_model_len, capacity) - tokens
                found.append((time / rate + delay, tokens, min(output, most), number))
        return found

    def _admit(self, arrivals: _Arrivals, now: float, delay: float) -> None:
        """Move the requests that have arrived by now to the queue.

        In a closed loop a request arrives when another one has ended.
        """
        while arrivals and self._arrived(arrivals[0][0], now):
            time, tokens, output, number = arrivals.popleft()
            self.waiting.append((tokens, output, number))
            self.made[number] = output
            self.came[number] = time - delay
            if self.closed:
                self.came[number] = now

    def _arrived(self, time: float, now: float) -> bool:
        if self.closed:
            return len(self.running) + len(self.waiting) < self.most
        return time <= now

    def _spoke(self, batch: list[tuple[int, int, int]], now: float) -> None:
        """Record first tokens after a prefill; finish requests of one output token."""
        for _, output, number in batch:
            if self.first[number] != self.first[number]:
                self.first[number] = now
            if output == 1:
                self.done[number] = now

    def _take(self) -> list[tuple[int, int, int]]:
        """Return the next prefill step's requests, removed from the queue."""
        limits, waiting, block = self.limits, self.waiting, self.limits.block_size
        batch: list[tuple[int, int, int]] = []
        longest = 0
        free = limits.num_blocks - self.blocks
        room = min(limits.max_num_prefill_seqs, self.most - len(self.running))
        while waiting and len(batch) < room:
            tokens = waiting[0][0]
            padded = -(-max(longest, tokens) // block) * block
            needed = tokens // block + 1
            if (
                batch and padded * (len(batch) + 1) > limits.max_num_batched_tokens
            ) or needed > free:
                break
            free -= needed
            longest = max(longest, tokens)
            batch.append(waiting.popleft())
        return batch

    def _prefill(self, batch: list[tuple[int, int, int]]) -> float:
        """Run one prefill step; return its seconds."""
        limits = self.limits
        longest = max(tokens for tokens, _, _ in batch)
        self.prefills.append(len(batch) * (limits.max_model_len + 1) + longest)
        for tokens, output, number in batch:
            if output > 1:
                sequence = _Sequence(tokens, output, self.step, number)
                self.running[sequence] = None
                self.ending.setdefault(sequence.end, []).append(sequence)
                self.blocks += tokens // limits.block_size + 1
                self.opening[(self.step - tokens) % limits.block_size] += 1
        return float(self.cost.prefill(len(batch), longest)) / 1000

    def _leave(self, sequence: _Sequence, held: int) -> None:
        """Remove a sequence from decode while its blocks contain ``held`` tokens."""
        block = self.limits.block_size
        del self.running[sequence]
        self.blocks -= -(-held // block)
        self.opening[(sequence.start - sequence.tokens) % block] -= 1

    def _decode(self, now: float, until: float) -> float:
        """Decode until a request may be admitted; return the time then, in seconds."""
        limits, opening, ending = self.limits, self.opening, self.ending
        far = False
        while self.running and now < until:
            now, far = self._stride(now, until) if far else self._walk(now, until)
            ended = ending.pop(self.step, None)
            if ended:
                for sequence in ended:
                    self._leave(sequence, sequence.tokens + sequence.output - 1)
                    self.done[sequence.number] = now
                self.blocks += opening[self.step % limits.block_size]
            while self.blocks > limits.num_blocks:
                self._preempt()
            if ended and (self.waiting or self.closed):
                break
        return now

    def _walk(self, now: float, until: float) -> tuple[float, bool]:
        """Decode without a change of the batch; return the clock.

        Also return whether nothing ended it. It ends when a sequence ends, the cache is full or a
        request may have arrived, and after _ARRAYS_PAY steps.
        """
        opening, ending, decodes, blocks = self.opening, self.ending, self.decodes, self.blocks
        size, most = self.limits.block_size, self.limits.num_blocks
        fixed, per_block = (
            float(self.cost.decode(len(self.running), 0)) / 1000,
            self.cost.decode_block / 1000,
        )
        key = len(self.running) * (most + 1)
        far = False
        for step in range(self.step + 1, self.step + 1 + _ARRAYS_PAY):
            decodes.append(key + blocks)
            now += fixed + per_block * blocks
            if step in ending:
                break
            blocks += opening[step % size]
            if blocks > most or now >= until:
                break
        else:
            far = True
        self.step, self.blocks = step, blocks
        return now, far

    def _stride(self, now: float, until: float) -> tuple[float, bool]:
        """Run `_walk` with arrays, for any number of steps.

        Sums run in the order of the steps: the clock reads the same.
        """
        import numpy as np

        most, steps = self.limits.num_blocks, min(self.ending) - self.step
        fixed, per_block = (
            float(self.cost.decode(len(self.running), 0)) / 1000,
            self.cost.decode_block / 1000,
        )
        opened = np.asarray(self.opening)[
            np.arange(self.step + 1, self.step + steps) % self.limits.block_size
        ]
        blocks = np.concatenate(([self.blocks], opened)).cumsum()
        clock = np.concatenate(([now], fixed + per_block * blocks)).cumsum()[1:]
        stops = np.flatnonzero((blocks[1:] > most) | (clock[:-1] >= until))
        done = int(stops[0]) + 1 if len(stops) else steps
        self.decodes.extend((len(self.running) * (most + 1) + blocks[:done]).tolist())
        self.step += done
        self.blocks = int(blocks[min(done, steps - 1)])
        return float(clock[done - 1]), False

    def _preempt(self) -> None:
        """Put the youngest back into the queue: it prefills again with its output so far."""
        sequence = next(reversed(self.running))
        generated = self.step - sequence.start
        self._leave(sequence, sequence.tokens + 1 + generated)
        self.ending[sequence.end].remove(sequence)
        if not self.ending[sequence.end]:
            del self.ending[sequence.end]
        if sequence.tokens + 1 + generated <= self.limits.longest_query:
            left = sequence.output - 1 - generated
            self.waiting.appendleft((sequence.tokens + 1 + generated, left, sequence.number))


def _of_mixed(run: MixedRun) -> Shapes:
    """Return the shapes that a V1 engine ran."""
    import numpy as np

    limits = run.limits
    rows = np.asarray(run.prompts, dtype=np.int64).reshape(-1, 3)
    fresh = rows[rows[:, 2] == 0]
    prompt = weighted(fresh[:, 0], fresh[:, 1], np.ones(len(fresh)))
    behind = rows[rows[:, 2] > 0]
    blocks = -(-behind[:, 2] // limits.block_size)
    continued = merge_continued([Continued(behind[:, 1], blocks, np.ones(len(behind)))])
    keys = np.concatenate([np.asarray(run.decodes, dtype=np.int64), *run.many_decodes])
    return Shapes(prompt, _count(keys, limits.num_blocks + 1), continued)


def _count(keys: list[int] | Integers, width: int) -> Weighted:
    """Count equal shapes; a key is batch * width + size."""
    import numpy as np

    found = np.asarray(keys, dtype=np.int64)
    if found.max(initial=0) < _DENSE * len(found):
        every = np.bincount(found)
        distinct = np.flatnonzero(every)
        counts = every[distinct]
    else:
        distinct, counts = np.unique(found, return_counts=True)
    return Weighted(distinct // width, distinct % width, counts.astype(np.float64))


def merge(parts: Iterable[tuple[float, Shapes]], cost: StepTime) -> Shapes:
    """Merge workloads, each with its share of the total time.

    The shares need not add up to 1.
    """
    import numpy as np

    scaled = [(share / max(shapes.milliseconds(cost), 1e-9), shapes) for share, shapes in parts]

    def phase(name: str) -> Weighted:
        pieces: list[tuple[float, Weighted]] = [
            (factor, getattr(shapes, name)) for factor, shapes in scaled
        ]
        return weighted(
            np.concatenate([piece.batch for _, piece in pieces]),
            np.concatenate([piece.size for _, piece in pieces]),
            np.concatenate([factor * piece.weight for factor, piece in pieces]),
        )

    behind = [
        Continued(s.continued.query, s.continued.context, f * s.continued.weight) for f, s in scaled
    ]
    return Shapes(phase("prompt"), phase("decode"), merge_continued(behind))


def merge_continued(parts: Sequence[Continued]) -> Continued:
    """Add up equal prompts after a context; return them by query and context."""
    import numpy as np

    added = weighted(
        np.concatenate([part.query for part in parts]),
        np.concatenate([part.context for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )
    return Continued(added.batch, added.size, added.weight)


def weighted(batch: Integers, size: Integers, weight: Floats) -> Weighted:
    """Add up equal shapes; return them sorted by batch and size."""
    import numpy as np

    width = int(size.max(initial=0)) + 1
    distinct, where = np.unique(batch * width + size, return_inverse=True)
    summed: Any = np.bincount(where, weights=weight, minlength=len(distinct))
    return Weighted(distinct // width, distinct % width, summed)
