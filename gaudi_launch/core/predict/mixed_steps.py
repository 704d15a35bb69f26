"""Simulate V1 scheduling: mixed steps, chunked prefill, one step planned ahead.

Follows vllm-project/vllm@v0.32.0:vllm/v1/core/sched/scheduler.py and vllm/v1/engine/core.py. The
sequences that decode take one token each of the step's budget, first come first served; a prompt,
or the part of it that fits in the remaining budget, takes the rest. A request is admitted where its
complete prompt fits into the free blocks. With ``limits.ahead`` a step is planned when the step
before the last one has ended: later arrivals are not known to it, and a sequence that ended in
between still has a place and blocks. When the cache is full the youngest sequence is preempted.

Forwards follow vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/v1/worker/hpu_model_runner.py: each
prompt is a separate forward (prompts without context share one, up to
``limits.max_num_prefill_seqs``), then all decoding sequences are one; the tokens of a step appear
together at its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.step_time import StepTime

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_NEVER = float("inf")
_NAN = float("nan")
# number of decode steps from which arrays are faster than a loop
_ARRAYS_PAY = 60


@dataclass
class Ticket:
    """A request in progress: tokens to prefill, tokens done, tokens to generate."""

    __slots__ = ("done", "first_step", "number", "output", "tokens")

    number: int
    tokens: int
    output: int
    done: int
    first_step: int

    @property
    def last_step(self) -> int:
        """Return the step that makes its last token."""
        return self.first_step + self.output - 1


class MixedRun:
    """One V1 engine while it serves.

    Steps are numbered; ``cut`` is when the next step is planned and ``last`` when the step before
    it ends. ``prompts`` and ``decodes`` are the forwards: (prompts, longest query, context in
    tokens), and batch * (num_blocks + 1) + blocks; ``many_decodes`` are more of the latter.
    """

    def __init__(self, limits: EngineLimits, cost: StepTime, concurrency: int | None) -> None:
        self.limits = limits
        self.cost = cost
        self.closed = concurrency is not None
        self.most_inside = concurrency or 0
        self.lag = 2 if limits.ahead else 1
        self.most_blocks = limits.physical_blocks
        self.block = limits.block_size
        self.width = limits.num_blocks + 1
        self.cut = self.last = 0.0
        self.step = 0
        self.inside = 0
        self.arrivals: deque[tuple[float, Ticket]] = deque()
        self.waiting: deque[Ticket] = deque()
        # in order of admission; the one whose prompt is done in part is the last
        self.running: dict[int, Ticket] = {}
        self.partial: Ticket | None = None
        self.joining: list[Ticket] = []
        self.decoding = 0
        self.decode_blocks = 0
        # blocks of requests that do not decode: prompts, and those whose end is not known yet
        self.other_blocks = 0
        self.blocked = False
        self.opening = [0] * limits.block_size
        self.ending: dict[int, list[Ticket]] = {}
        self.leaving: dict[int, list[Ticket]] = {}
        # the steps of both as a heap; one whose requests left is removed when it comes first
        self.last_steps: list[int] = []
        self.prompts: list[tuple[int, int, int]] = []
        self.decodes: list[int] = []
        # more decode forwards, as arrays
        self.many_decodes: list[Integers] = []
        self.came: list[float] = []
        self.first: list[float] = []
        self.done: list[float] = []
        self.made: list[int] = []

    def serve(
        self,
        requests: Sequence[tuple[float, int, int]],
        rate: float,
        delay: float = 0.0,
        cached: Sequence[int] = (),
    ) -> None:
        """Serve ``requests``, which reach the engine ``delay`` seconds after they came.

        ``cached``: tokens of each prompt that are not computed, in complete blocks; empty for none.
        Blocks that several sequences use are counted for each of them.
        """
        self._expect(requests, rate, delay)
        if cached:
            self._begin_cached(cached)
        while self.arrivals or self.waiting or self.running:
            if not (self.running or self.waiting):
                self._idle()
            self._plan()
            self._stride()

    def _expect(
        self, requests: Sequence[tuple[float, int, int]], rate: float, delay: float
    ) -> None:
        longest = min(self.limits.max_model_len, self.most_blocks * self.block)
        count = len(requests)
        self.came, self.first, self.done = ([_NAN] * count for _ in range(3))
        self.made = [0] * count
        for number, (time, tokens, output) in enumerate(requests):
            made = min(output, longest - tokens)
            if tokens > 0 and made > 0:
                came = time / rate
                self.made[number] = made
                self.came[number] = came
                self.arrivals.append((came + delay, Ticket(number, tokens, made, 0, 0)))

    def _begin_cached(self, cached: Sequence[int]) -> None:
        """Count cached tokens of prompts as done; the last token is always computed."""
        block = self.block
        for _, ticket in self.arrivals:
            known = min(cached[ticket.number], ticket.tokens - 1)
            ticket.done = known // block * block

    def _idle(self) -> None:
        """Return True if nothing is left to do until the next request."""
        time = self.arrivals[0][0]
        if not self.closed and time > self.last:
            self.last = time
        self.cut = self.last

    def _plan(self) -> None:
        """Plan the next step and run it."""
        # a step has few of these parts, and there are a million steps in a search
        self.step += 1
        released = self.leaving.pop(self.step - self.lag, None)
        if released:
            self._release(released)
        if self.arrivals:
            self._receive()
        ended = self.ending.pop(self.step - 1, None)
        if ended:
            self._leave(ended)
        if self.joining:
            self._join()
        before = len(self.waiting)
        self._open_blocks()
        forwards: list[tuple[int, int]] = []
        if self.partial is not None:
            self._continue(self.partial, forwards)
        if len(self.waiting) > before:
            # a step that preempts admits no request
            self.blocked = False
        elif self.waiting and not self.blocked and self.partial is None:
            self._admit(forwards)
        self._run(forwards)

    def _release(self, released: list[Ticket]) -> None:
        """Release the places and blocks of requests that ended in a completed step."""
        for ticket in released:
            del self.running[ticket.number]
            self.other_blocks -= -(-(ticket.tokens + ticket.output - 1) // self.block)
            self.done[ticket.number] = self.cut
        self.inside -= len(released)
        self.blocked = False

    def _receive(self) -> None:
        arrivals = self.arrivals
        if self.closed:
            while arrivals and self.inside < self.most_inside:
                ticket = arrivals.popleft()[1]
                self.came[ticket.number] = self.cut
                self.waiting.append(ticket)
                self.inside += 1
            return
        while arrivals and arrivals[0][0] <= self.cut:
            self.waiting.append(arrivals.popleft()[1])
            self.inside += 1

    def _leave(self, ended: list[Ticket]) -> None:
        """Remove sequences that made their last token in the step before."""
        for ticket in ended:
            if ticket.output > 1:
                held = -(-(ticket.tokens + ticket.output - 1) // self.block)
                self.decoding -= 1
                self.decode_blocks -= held
                self.opening[self._residue(ticket)] -= 1
                self.other_blocks += held

    def _join(self) -> None:
        """Add sequences that finished their prompt in the step before to decode."""
        for ticket in self.joining:
            if ticket.output > 1:
                held = -(-ticket.tokens // self.block)
                self.other_blocks -= held
                self.decode_blocks += held
                self.decoding += 1
                self.opening[self._residue(ticket)] += 1
        self.joining = []

    def _open_blocks(self) -> None:
        """Give each decoding sequence the block that its token needs.

        The youngest make room for it.
        """
        residue, most = self.step % self.block, self.most_blocks
        while self.decode_blocks + self.opening[residue] + self.other_blocks > most:
            if not self._preempt():
                break
        self.decode_blocks += self.opening[residue]

    def _preempt(self) -> bool:
        """Send the youngest back to the queue with what it has made so far."""
        for ticket in reversed(self.running.values()):
            if ticket is self.partial:
                self._restart(ticket)
                return True
            if ticket.last_step >= self.step and ticket.done >= ticket.tokens:
                self._interrupt(ticket)
                return True
        return False

    def _restart(self, ticket: Ticket) -> None:
        self.other_blocks -= self._blocks(ticket.done)
        ticket.done = 0
        self.partial = None
        del self.running[ticket.number]
        self.waiting.appendleft(ticket)

    def _interrupt(self, ticket: Ticket) -> None:
        made = self.step - ticket.first_step
        self.decode_blocks -= self._blocks(ticket.tokens + made - 1)
        self.decoding -= 1
        self.opening[self._residue(ticket)] -= 1
        for known in (self.ending, self.leaving):
            known[ticket.last_step].remove(ticket)
            if not known[ticket.last_step]:
                del known[ticket.last_step]
        del self.running[ticket.number]
        self.waiting.appendleft(
            Ticket(ticket.number, ticket.tokens + made, ticket.output - made, 0, 0)
        )

    def _continue(self, ticket: Ticket, forwards: list[tuple[int, int]]) -> None:
        """Add the next part of a prompt that was begun: its (tokens, context)."""
        budget = self.limits.max_num_batched_tokens - self.decoding
        tokens = min(ticket.tokens - ticket.done, budget)
        if tokens <= 0:
            return
        more = self._blocks(ticket.done + tokens) - self._blocks(ticket.done)
        if more > self._free():
            self._restart(ticket)
            return
        self.other_blocks += more
        forwards.append((tokens, ticket.done))
        self._advance(ticket, tokens)

    def _admit(self, forwards: list[tuple[int, int]]) -> None:
        """Add prompts that begin in this step, (tokens, context) each."""
        waiting, running, most = self.waiting, self.running, self.limits.max_num_seqs
        used = sum(tokens for tokens, _ in forwards)
        budget = self.limits.max_num_batched_tokens - self.decoding - used
        while waiting and budget > 0:
            ticket = waiting[0]
            if len(running) >= most or -(-ticket.tokens // self.block) > self._free():
                self.blocked = True
                break
            waiting.popleft()
            running[ticket.number] = ticket
            tokens = min(ticket.tokens - ticket.done, budget)
            budget -= tokens
            forwards.append((tokens, ticket.done))
            self._advance(ticket, tokens)
            self.other_blocks += -(-ticket.done // self.block)

    def _advance(self, ticket: Ticket, tokens: int) -> None:
        """Prefill ``tokens`` more of a prompt."""
        ticket.done += tokens
        if ticket.done < ticket.tokens:
            self.partial = ticket
            return
        self.partial = None
        ticket.first_step = self.step
        last = ticket.last_step
        if last not in self.leaving:
            heappush(self.last_steps, last)
        self.leaving.setdefault(last, []).append(ticket)
        self.ending.setdefault(last, []).append(ticket)
        self.joining.append(ticket)

    def _run(self, forwards: list[tuple[int, int]]) -> None:
        """Let the step take its time."""
        milliseconds = 0.0
        if forwards:
            merged = self._merged(forwards)
            for batch, tokens, context in merged:
                milliseconds += self.cost.chunk(batch, tokens, context)
            self.prompts += merged
        if self.decoding:
            milliseconds += self.cost.decode(self.decoding, self.decode_blocks)
            self.decodes.append(self.decoding * self.width + self.decode_blocks)
        before = self.last
        self.last += milliseconds / 1000
        self.cut = before if self.limits.ahead else self.last
        for ticket in self.joining:
            # one that was interrupted made its first token before
            if self.first[ticket.number] != self.first[ticket.number]:
                self.first[ticket.number] = self.last

    def _merged(self, forwards: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Return forwards of (prompts, longest, context).

        Prompts without context share one within the budget.
        """
        limits = self.limits
        block, budget = self.block, limits.max_num_batched_tokens
        found: list[tuple[int, int, int]] = []
        for tokens, context in forwards:
            if found and limits.max_num_prefill_seqs > 1:
                batch, longest, before = found[-1]
                padded = -(-max(longest, tokens) // block) * block
                fits = batch < limits.max_num_prefill_seqs and padded * (batch + 1) <= budget
                if fits and not context and not before:
                    found[-1] = (batch + 1, max(longest, tokens), 0)
                    continue
            found.append((1, tokens, context))
        return found

    def _stride(self) -> None:
        """Run steps of decoding alone: no request joins, leaves or is admitted."""
        if self.joining or self.partial is not None or not self.decoding:
            return
        if self.waiting and not self.blocked:
            return
        steps = self._next_end() - self.step
        until = self._next_arrival()
        if steps >= _ARRAYS_PAY and self.cut < until:
            self._stride_arrays(steps, until)
        else:
            self._walk(steps, until)

    def _next_end(self) -> int:
        """Return the step before which no sequence ends, and none that has ended leaves.

        A sequence leaves at most one step after its end is known.
        """
        while self.last_steps[0] not in self.leaving:
            heappop(self.last_steps)
        first = self.last_steps[0]
        if first in self.ending:
            return first
        return first + self.lag - 1

    def _walk(self, steps: int, until: float) -> None:
        """Run at most ``steps`` steps of decoding alone, one by one.

        A step that begins at ``until`` or later, or that finds the cache full, is not run.
        """
        opening, size = self.opening, self.block
        fixed = float(self.cost.decode(self.decoding, 0)) / 1000
        each = self.cost.decode_block / 1000
        key = self.decoding * self.width
        room = self.most_blocks - self.other_blocks
        step, blocks, cut, last = self.step, self.decode_blocks, self.cut, self.last
        ahead = self.limits.ahead
        for following in range(step + 1, step + 1 + steps):
            more = blocks + opening[following % size]
            if more > room or cut >= until:
                break
            step = following
            blocks = more
            self.decodes.append(key + blocks)
            cut = last
            last += fixed + each * blocks
            if not ahead:
                cut = last
        self.step, self.decode_blocks, self.cut, self.last = step, blocks, cut, last

    def _stride_arrays(self, steps: int, until: float) -> None:
        """Run `_walk` with arrays, for many steps.

        Sums run in the order of the steps: the clock reads the same.
        """
        import numpy as np

        fixed = float(self.cost.decode(self.decoding, 0)) / 1000
        each = self.cost.decode_block / 1000
        numbers = np.arange(self.step + 1, self.step + 1 + steps) % self.block
        blocks = self.decode_blocks + np.asarray(self.opening)[numbers].cumsum()
        clock = np.concatenate(([self.last], fixed + each * blocks)).cumsum()
        # the clock when each step is planned
        planned = np.concatenate(([self.cut], clock[:-2] if self.limits.ahead else clock[1:-1]))
        room = self.most_blocks - self.other_blocks
        stops = np.flatnonzero((blocks > room) | (planned >= until))
        done = int(stops[0]) if len(stops) else steps
        if not done:
            return
        self.many_decodes.append(self.decoding * self.width + blocks[:done])
        self.step += done
        self.decode_blocks = int(blocks[done - 1])
        self.cut = float(clock[done - 1] if self.limits.ahead else clock[done])
        self.last = float(clock[done])

    def _next_arrival(self) -> float:
        """Return when the next request may be admitted; infinity while none fits."""
        if self.blocked or not self.arrivals:
            return _NEVER
        if self.closed and self.inside < self.most_inside:
            return -_NEVER
        return _NEVER if self.closed else self.arrivals[0][0]

    def _free(self) -> int:
        return self.most_blocks - self.decode_blocks - self.other_blocks

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block)

    def _residue(self, ticket: Ticket) -> int:
        """Return the steps, modulo a block, at which a sequence needs a new block."""
        return (1 + ticket.first_step - ticket.tokens) % self.block
