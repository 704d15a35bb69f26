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

    # attributes in slots are read twice as fast as those of a large dictionary
    __slots__ = (
        "arrivals", "block", "blocked", "came", "cost", "cut", "decode_blocks", "decodes",
        "decoding", "done", "ending", "first", "full", "inside", "joining", "lag", "last",
        "last_steps", "least_free", "leaving", "limits", "made", "many_decodes", "most_blocks",
        "most_inside", "most_running", "opening", "other_blocks", "partial", "prompts",
        "running", "step", "waiting", "width",
    )  # fmt: skip

    def __init__(self, limits: EngineLimits, cost: StepTime, concurrency: int | None) -> None:
        self.limits = limits
        self.cost = cost
        self.most_inside = _NEVER if concurrency is None else concurrency
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
        # whether a request ever waited for a place or for blocks; the most places, and the fewest
        # blocks that were left
        self.full = False
        self.most_running, self.least_free = 0, self.most_blocks
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
            if self.decoding and not self.joining and self.partial is None:
                self._stride()

    def _expect(
        self, requests: Sequence[tuple[float, int, int]], rate: float, delay: float
    ) -> None:
        longest = min(self.limits.max_model_len, self.most_blocks * self.block)
        if self.most_inside < _NEVER:
            # in a closed loop a request comes when another one has left
            delay = -_NEVER
        count = len(requests)
        self.came, self.first, self.done = ([_NAN] * count for _ in range(3))
        self.made = [0] * count
        for number, (time, tokens, output) in enumerate(requests):
            if tokens + output > longest:
                output = longest - tokens
            if tokens > 0 and output > 0:
                self.made[number] = output
                self.came[number] = came = time / rate
                self.arrivals.append((came + delay, Ticket(number, tokens, output, 0, 0)))

    def _begin_cached(self, cached: Sequence[int]) -> None:
        """Count cached tokens of prompts as done; the last token is always computed."""
        block = self.block
        for _, ticket in self.arrivals:
            known = min(cached[ticket.number], ticket.tokens - 1)
            ticket.done = known // block * block

    def _idle(self) -> None:
        """Wait for the next request."""
        self.cut = self.last = max(self.last, self.arrivals[0][0])

    def _plan(self) -> None:
        """Plan the next step and run it."""
        # a step has few of these parts, and there are a million steps in a search
        self.step = step = self.step + 1
        if step - self.lag in self.leaving:
            self._release(self.leaving.pop(step - self.lag))
        if self.arrivals and self.arrivals[0][0] <= self.cut:
            self._receive()
        if step - 1 in self.ending:
            self._leave(self.ending.pop(step - 1))
        if self.joining:
            self._join()
        waiting = len(self.waiting)
        # each decoding sequence gets the block that its token needs
        self._make_room()
        self.decode_blocks += self.opening[step % self.block]
        milliseconds = 0.0
        if self.waiting or self.partial is not None:
            milliseconds = self._prefill(waiting)
        if self.decoding:
            milliseconds += self.cost.decode(self.decoding, self.decode_blocks)
            self.decodes.append(self.decoding * self.width + self.decode_blocks)
        self.cut = self.last
        self.last += milliseconds / 1000
        if not self.limits.ahead:
            self.cut = self.last
        for ticket in self.joining:
            # one that was interrupted made its first token before
            if self.first[ticket.number] != self.first[ticket.number]:
                self.first[ticket.number] = self.last

    def _release(self, released: list[Ticket]) -> None:
        """Release the places and blocks of requests that ended in a completed step."""
        self.least_free = min(self.least_free, self._free())
        for ticket in released:
            del self.running[ticket.number]
            self.other_blocks -= -(-(ticket.tokens + ticket.output - 1) // self.block)
            self.done[ticket.number] = self.cut
        self.inside -= len(released)
        self.blocked = False

    def _receive(self) -> None:
        arrivals, cut = self.arrivals, self.cut
        while arrivals and arrivals[0][0] <= cut and self.inside < self.most_inside:
            arrived, ticket = arrivals.popleft()
            if arrived == -_NEVER:
                self.came[ticket.number] = cut
            self.waiting.append(ticket)
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

    def _make_room(self) -> None:
        """Preempt the youngest until each decoding sequence has a block for its token."""
        residue = self.step % self.block
        while self.decode_blocks + self.opening[residue] + self.other_blocks > self.most_blocks:
            if not self._preempt():
                break

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
        self.full = True
        self.other_blocks -= self._blocks(ticket.done)
        ticket.done = 0
        self.partial = None
        del self.running[ticket.number]
        self.waiting.appendleft(ticket)

    def _interrupt(self, ticket: Ticket) -> None:
        self.full = True
        made = self.step - ticket.first_step
        self.decode_blocks -= self._blocks(ticket.tokens + made - 1)
        self.decoding -= 1
        self.opening[self._residue(ticket)] -= 1
        together = self.leaving[ticket.last_step]
        together.remove(ticket)
        if not together:
            del self.ending[ticket.last_step], self.leaving[ticket.last_step]
        del self.running[ticket.number]
        self.waiting.appendleft(
            Ticket(ticket.number, ticket.tokens + made, ticket.output - made, 0, 0)
        )

    def _prefill(self, waiting: int) -> float:
        """Add prompts, or parts of them, to the step; return their milliseconds.

        ``waiting`` requests waited before a sequence was preempted.
        """
        forwards: list[tuple[int, int]] = []
        if self.partial is not None:
            self._continue(self.partial, forwards)
        if len(self.waiting) > waiting:
            # a step that preempts admits no request
            self.blocked = False
        elif self.waiting and not self.blocked and self.partial is None:
            self._admit(forwards)
        milliseconds = 0.0
        for batch, tokens, context in self._merged(forwards):
            milliseconds += self.cost.chunk(batch, tokens, context)
            self.prompts.append((batch, tokens, context))
        return milliseconds

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
        budget = self.limits.max_num_batched_tokens - self.decoding
        if forwards:
            budget -= forwards[0][0]
        free = self._free()
        while waiting and budget > 0:
            ticket = waiting[0]
            left = free - -(-ticket.tokens // self.block)
            if len(running) >= most or left < 0:
                self.blocked = self.full = True
                break
            self.least_free = min(self.least_free, left)
            waiting.popleft()
            running[ticket.number] = ticket
            tokens = min(ticket.tokens - ticket.done, budget)
            budget -= tokens
            forwards.append((tokens, ticket.done))
            self._advance(ticket, tokens)
            held = -(-ticket.done // self.block)
            self.other_blocks += held
            free -= held
        self.most_running = max(self.most_running, len(running))

    def _advance(self, ticket: Ticket, tokens: int) -> None:
        """Prefill ``tokens`` more of a prompt."""
        ticket.done += tokens
        if ticket.done < ticket.tokens:
            self.partial = ticket
            return
        self.partial = None
        ticket.first_step = self.step
        last = self.step + ticket.output - 1
        if last in self.leaving:
            self.leaving[last].append(ticket)
        else:
            self.ending[last] = self.leaving[last] = [ticket]
            heappush(self.last_steps, last)
        self.joining.append(ticket)

    def _merged(self, forwards: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Return forwards of (prompts, longest, context).

        Prompts without context share one within the budget.
        """
        limits = self.limits
        block, budget = self.block, limits.max_num_batched_tokens
        if limits.max_num_prefill_seqs == 1:
            return [(1, tokens, context) for tokens, context in forwards]
        found: list[tuple[int, int, int]] = []
        for tokens, context in forwards:
            if found:
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
        if self.waiting and not self.blocked:
            return
        while self.last_steps[0] not in self.leaving:
            heappop(self.last_steps)
        first = self.last_steps[0]
        steps = first - self.step
        if first not in self.ending:
            # its end is known, and it leaves at most one step later
            steps += self.lag - 1
        until = _NEVER
        if self.arrivals and not self.blocked and self.inside < self.most_inside:
            # the next request may be admitted
            until = self.arrivals[0][0]
        if steps <= 0 or self.cut >= until:
            return
        if steps >= min(_ARRAYS_PAY, self.block):
            self._stride_arrays(steps, until)
        else:
            self._walk(steps, until)

    def _walk(self, steps: int, until: float) -> None:
        """Run at most ``steps`` steps of decoding alone, one by one.

        There are fewer than a block has tokens. A step that begins at ``until`` or later, or that
        finds the cache full, is not run.
        """
        begin = (self.step + 1) % self.block
        opening = self.opening[begin : begin + steps]
        if len(opening) < steps:
            opening += self.opening[: steps - len(opening)]
        fixed, each = self._decode_seconds()
        key = self.decoding * self.width
        room = self.most_blocks - self.other_blocks
        before = len(self.decodes)
        blocks, cut, last = self.decode_blocks, self.cut, self.last
        ahead, note = self.limits.ahead, self.decodes.append
        for more in opening:
            blocks += more
            if blocks > room or cut >= until:
                blocks -= more
                break
            note(key + blocks)
            cut = last
            last += fixed + each * blocks
            if not ahead:
                cut = last
        self.step += len(self.decodes) - before
        self.decode_blocks, self.cut, self.last = blocks, cut, last

    def _decode_seconds(self) -> tuple[float, float]:
        """Return the seconds of a decode step without its blocks, and of each block."""
        return float(self.cost.decode(self.decoding, 0)) / 1000, self.cost.decode_block / 1000

    def _stride_arrays(self, steps: int, until: float) -> None:
        """Run `_walk` with arrays, for many steps.

        Sums run in the order of the steps: the clock reads the same.
        """
        import numpy as np

        fixed, each = self._decode_seconds()
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

    def _free(self) -> int:
        return self.most_blocks - self.decode_blocks - self.other_blocks

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block)

    def _residue(self, ticket: Ticket) -> int:
        """Return the steps, modulo a block, at which a sequence needs a new block."""
        return (1 + ticket.first_step - ticket.tokens) % self.block
