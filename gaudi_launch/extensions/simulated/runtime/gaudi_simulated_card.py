"""A card's clock: buckets and seconds of a step, and the host's delay.

Standard library only. Shapes and lookups as in vllm-project/vllm-gaudi@091bbadd:
vllm_gaudi/v1/worker/hpu_model_runner.py (_form_prefill_batch, _create_decode_input_data) and
vllm_gaudi/extension/bucketing/common.py (HPUBucketingManager): one forward for each prompt or part
of a prompt, then one for all sequences that decode; the tokens of a step appear at its end.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, int, int]

# a step that ends later than this is late: the sleep of an idle machine ends within 0.2 ms
TOLERANCE_SECONDS = 0.001
# the part of the simulated time by which a run may be behind and still count as real time
BEHIND_SHARE = 0.02
# base steps of invented buckets: batch and blocks (common.py, initialize)
_FALLBACK_BATCH, _FALLBACK_BLOCKS = 2, 32


@dataclass(frozen=True)
class CardSettings:
    """The launcher's plan for the card, in milliseconds unless named otherwise.

    ``cost`` has the constants of the launcher's step-time model, ``graph_seconds`` the time to
    compile one graph, ``token_step`` the base step of the tokens of an invented bucket. Empty lists
    of buckets: shapes are not padded and nothing is compiled.
    """

    cost: Mapping[str, float]
    prompt: tuple[Shape, ...]
    decode: tuple[Shape, ...]
    graph_seconds: float
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    prefill_batch: int
    contiguous: bool
    warmed: bool
    time_scale: float
    # settings that an earlier version wrote are read too: restart starts the same command
    token_step: int = 32

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> CardSettings:
        """Return the settings of the launcher's file."""
        values = dict(document)
        for name in ("prompt", "decode"):
            values[name] = tuple(
                (batch, tokens, blocks) for batch, tokens, blocks in document[name]
            )
        return cls(**values)


def round_up(count: int, step: int) -> int:
    return -(-count // step) * step


def fallback_value(count: int, base: int) -> int:
    """Return the invented size of a bucket (common.py, calc_fallback_value)."""
    if count <= 1:
        return count
    return round_up(count, math.ceil(math.pow(count, 1 / 3)) * base)


@dataclass(frozen=True)
class Found:
    """A bucket, and the log line of one that was not prepared."""

    shape: Shape
    warning: str = ""


class PreparedBuckets:
    """The lists of prepared buckets, to which shapes outside them are added."""

    def __init__(self, settings: CardSettings) -> None:
        self.settings = settings
        self.prompt = sorted(settings.prompt)
        self.decode = sorted(settings.decode)
        self._most_blocks = max((shape[2] for shape in self.decode), default=0)

    def find_prompt(self, batch: int, tokens: int, blocks: int) -> Found:
        """Return the bucket of a prompt forward."""
        wanted = (batch, tokens, blocks)
        if not self.prompt:
            return Found(wanted)
        found = _closest(self.prompt, wanted)
        if found is not None:
            return Found(found)
        limits = self.settings
        most_context = -(-(limits.max_model_len - 1) // limits.block_size)
        made = (
            min(fallback_value(batch, _FALLBACK_BATCH), limits.max_num_seqs),
            min(fallback_value(tokens, limits.token_step), limits.max_num_batched_tokens),
            min(fallback_value(blocks, _FALLBACK_BLOCKS), most_context),
        )
        insort(self.prompt, made)
        return Found(
            made, f"Prompt bucket for {wanted} was not prepared. Adding new bucket: {made}"
        )

    def find_decode(self, batch: int, blocks: int) -> Found:
        """Return the bucket of a decode forward of ``blocks`` KV blocks."""
        wanted = (batch, 1, min(blocks, self._most_blocks) if self.decode else blocks)
        if not self.decode:
            return Found(wanted)
        found = _closest(self.decode, wanted)
        if found is not None:
            return Found(found)
        made = (
            min(fallback_value(batch, _FALLBACK_BATCH), self.settings.max_num_seqs),
            1,
            min(fallback_value(wanted[2], _FALLBACK_BLOCKS), self._most_blocks),
        )
        if made in self.decode:
            return Found(made)
        insort(self.decode, made)
        return Found(
            made, f"Decode bucket for {wanted} was not prepared. Adding new bucket: {made}"
        )


def _closest(shapes: Sequence[Shape], wanted: Shape) -> Shape | None:
    """Return the first bucket that is as large in all dimensions."""
    batch, tokens, blocks = wanted
    for at in range(bisect_left(shapes, wanted), len(shapes)):
        shape = shapes[at]
        if shape[0] >= batch and shape[1] >= tokens and shape[2] >= blocks:
            return shape
    return None


@dataclass(frozen=True)
class Prompt:
    """A prompt, or a part of one, after ``before`` computed tokens."""

    tokens: int
    before: int


class StepPricer:
    """Seconds of each step by its padded shapes.

    A shape that is new is compiled first.
    """

    def __init__(self, settings: CardSettings, *, single_prompts: bool = False) -> None:
        """Price steps. ``single_prompts``: prompts are never merged (models with states)."""
        self.settings = settings
        self.buckets = PreparedBuckets(settings)
        self._merged = 1 if single_prompts else settings.prefill_batch
        self._compiled: set[tuple[str, Shape]] = set()
        if settings.warmed:
            self._compiled.update(("prompt", shape) for shape in settings.prompt)
            self._compiled.update(("decode", shape) for shape in settings.decode)
        self._compiles = bool(settings.prompt)

    def price(
        self, prompts: Sequence[Prompt], sequences: int, blocks: int
    ) -> tuple[float, list[str]]:
        """Return the seconds of a step, and the log lines of its compilations.

        ``blocks`` are the KV blocks of these ``sequences``.
        """
        milliseconds = 0.0
        warnings: list[str] = []
        compiled = 0
        cost = self.settings.cost
        size = self.settings.block_size
        for group in self._groups(prompts):
            context = max(-(-each.before // size) for each in group)
            found = self.buckets.find_prompt(
                len(group), max(each.tokens for each in group), context
            )
            compiled += self._note("prompt", found, warnings)
            batch, tokens, context = found.shape
            masked = 1 + cost.get("prefill_masked", 0.0) * (context > 0)
            attention = cost["prefill_attention"] * masked * (tokens + 2 * size * context)
            milliseconds += cost["prefill_fixed"] + batch * tokens * (
                cost["prefill_token"] + attention
            )
        if sequences:
            found = self.buckets.find_decode(sequences, blocks)
            compiled += self._note("decode", found, warnings)
            batch, _, padded = found.shape
            milliseconds += (
                cost["decode_fixed"]
                + cost["decode_sequence"] * batch
                + cost["decode_block"] * padded
            )
        return milliseconds / 1000 + compiled * self.settings.graph_seconds, warnings

    def forget(self) -> None:
        """Lose every compiled graph, as if nothing had been warmed up."""
        self._compiled.clear()

    def _groups(self, prompts: Iterable[Prompt]) -> list[list[Prompt]]:
        """Return the prompts of each forward: those after a context are alone."""
        groups: list[list[Prompt]] = []
        for prompt in prompts:
            joins = bool(groups) and not prompt.before and not groups[-1][0].before
            if joins and len(groups[-1]) < self._merged:
                groups[-1].append(prompt)
            else:
                groups.append([prompt])
        return groups

    def _note(self, phase: str, found: Found, warnings: list[str]) -> int:
        """Record the use of a bucket; return the graphs that are compiled for it, 0 or 1."""
        if found.warning:
            warnings.append(found.warning)
        if not self._compiles or (phase, found.shape) in self._compiled:
            return 0
        self._compiled.add((phase, found.shape))
        # hpu_model_runner.py _check_config
        warnings.append(f"Configuration: {(phase, *found.shape)} was not warmed-up!")
        return 1


@dataclass
class HostTimes:
    """Processor seconds of the engine's thread, by the size of the batch."""

    steps: int = 0
    seconds: float = 0.0
    longest: float = 0.0


@dataclass
class CardClock:
    """The time at which the card has finished each step, and how late the host was.

    A step begins when the one before it has ended, or when the host sends it. ``behind`` are the
    seconds by which the host was late: it sent a step to a card that waited, or fetched its tokens
    after they were there.
    """

    scale: float = 1.0
    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    thread_time: Callable[[], float] = time.thread_time
    free: float = 0.0
    steps: int = 0
    late: int = 0
    behind: float = 0.0
    busy: float = 0.0
    host: dict[int, HostTimes] = field(default_factory=dict)
    _thread: float | None = None

    def begin(self, seconds: float, sequences: int, *, continues: bool) -> float:
        """Return when a step of ``seconds`` ends that the host sends now.

        ``continues``: the engine had work since the step before, so that the card should not have
        waited.
        """
        now = self.now()
        waited = 0.0
        if continues and self.steps:
            waited = now - self.free
        if waited > TOLERANCE_SECONDS:
            self.late += 1
            self.behind += waited
        self._count(sequences, continues=continues)
        seconds = seconds / self.scale
        self.free = max(now, self.free) + seconds
        self.busy += seconds
        self.steps += 1
        return self.free

    def wait(self, due: float) -> None:
        """Wait until the card has finished the step that ends at ``due``."""
        left = due - self.now()
        if left > 0:
            self.sleep(left)
        elif -left > TOLERANCE_SECONDS:
            self.late += 1
            self.behind -= left

    @property
    def is_true(self) -> bool:
        """Return True if the run was as fast as the card would have been."""
        return self.behind <= BEHIND_SHARE * self.busy

    def _count(self, sequences: int, *, continues: bool) -> None:
        """Add the thread's time since the last step to the batches of this size."""
        spent = self.thread_time()
        if self._thread is not None and continues:
            # counted by powers of two: 1, 2, 4, ... up to 128 and more
            times = self.host.setdefault(1 << max(0, sequences - 1).bit_length(), HostTimes())
            times.steps += 1
            times.seconds += spent - self._thread
            times.longest = max(times.longest, spent - self._thread)
        self._thread = spent

    def record(self) -> dict[str, Any]:
        """Return the record of the run, with the host's time per step by batch."""
        batches = {
            str(batch): {
                "steps": times.steps,
                "host_ms": round(1000 * times.seconds / times.steps, 3),
                "longest_ms": round(1000 * times.longest, 3),
            }
            for batch, times in sorted(self.host.items())
        }
        return {
            "schema": 1,
            "steps": self.steps,
            "late_steps": self.late,
            "busy_seconds": round(self.busy, 3),
            "behind_seconds": round(self.behind, 3),
            "real_time": self.is_true,
            "time_scale": self.scale,
            "batches": batches,
        }
