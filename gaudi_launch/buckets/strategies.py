"""What an engine would do by itself: each of its strategies with the ranges its public start script gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gaudi_launch.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.buckets.captured import captured
from gaudi_launch.buckets.coverage import Holes, uncovered
from gaudi_launch.buckets.engine_buckets import FORK_1_21, FORK_1_22, FORK_DEEPSEEK, count, engine_buckets
from gaudi_launch.buckets.optimiser.padding_cost import Score, score
from gaudi_launch.performance.limits import EngineLimits
from gaudi_launch.performance.simulator import Shapes
from gaudi_launch.performance.step_time import StepTime

# vllm-gaudi's linear context grid can have hundreds of thousands of entries
MOST_WRITTEN = 200_000
# 1.21's script with -r: no pass over all buckets, and captures up to this length (scripts/utils.sh)
_SKIP_COMPILE, _SCRIPT_CAPTURE = "VLLM_SKIP_LAZY_WARMUP", 8192


@dataclass(frozen=True)
class Judged:
    """One strategy of an engine. ``buckets`` is None where it fails (``failure`` says how) or is too long to
    write."""

    name: str
    prompt_graphs: int
    decode_graphs: int
    buckets: Buckets | None
    holes: Holes | None
    score: Score | None
    failure: str = ""

    @property
    def graphs(self) -> int:
        return self.prompt_graphs + self.decode_graphs

    def weight(self, price: float) -> float:
        """Overhead plus what its graphs cost at this share of step time each; infinite with holes or no list."""
        if self.score is None or self.holes is None or self.holes.shapes:
            return float("inf")
        return self.score.overhead + price * self.graphs


def arguments_of(limits: EngineLimits) -> dict[str, Any]:
    """The limits as `engine_buckets` wants them."""
    return {
        "max_num_seqs": limits.max_num_seqs,
        "max_model_len": limits.max_model_len,
        "block_size": limits.block_size,
        "max_num_prefill_seqs": limits.max_num_prefill_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "num_hpu_blocks": limits.cache_blocks or limits.num_blocks,
        "prefix_caching": limits.prefix_caching,
    }


def script_ranges(engine: str, limits: EngineLimits, reduce: tuple[int, int] | None = None) -> dict[str, str]:
    """The bucket variables of the engine's public start script (none for vllm-gaudi); ``reduce`` is the scripts'
    -r.

    HabanaAI/vllm-fork@aice/v1.21.0 and aice/v1.22.0:scripts/utils.sh (set_bucketing, set_partial_warmup),
    deepseek_r1:scripts/quickstart/start_vllm.sh.
    """
    block = limits.block_size

    def up(value: int, step: int) -> int:
        return -(-value // step) * step

    seqs = limits.max_num_seqs
    if engine == FORK_1_21:
        step = min(-(-seqs // 16), 16)
        rows = up(seqs, step)
        ranges = {
            "PROMPT_BS": (1, 1, max(1, min(limits.max_num_batched_tokens // limits.input_min, seqs))),
            "PROMPT_SEQ": (up(limits.input_min, block), block, up(limits.input_max, block) + block),
            "DECODE_BS": (1, step, rows),
            "DECODE_BLOCK": (
                up(-(-limits.input_min // block), block),
                block,
                up((-(-(limits.input_max + limits.output_max) // block) + 1) * rows, block),
            ),
        }
    elif engine in (FORK_1_22, FORK_DEEPSEEK):
        step = 2 if engine == FORK_1_22 else 8
        rows = up(seqs, step)
        ranges = {
            "PROMPT_BS": (1, 1, limits.max_num_prefill_seqs),
            "PROMPT_SEQ": (block, block, limits.max_model_len),
            "DECODE_BS": (1, step, rows),
            "DECODE_BLOCK": (block, block, up(limits.blocks_per_sequence * rows, block)),
        }
    else:
        return {}
    if reduce is not None:
        batch, length = reduce
        ranges["PROMPT_SEQ"] = (*ranges["PROMPT_SEQ"][:2], length)
        ranges["DECODE_BS"] = (*ranges["DECODE_BS"][:2], batch)
        top = up(-(-(length + limits.output_max) * batch // block), block)
        ranges["DECODE_BLOCK"] = (*ranges["DECODE_BLOCK"][:2], top)
    return variables(ranges)


def variables(ranges: Mapping[str, tuple[float, ...]]) -> dict[str, str]:
    """``{"PROMPT_BS": (min, step, max[, limit])}`` as environment variables."""
    words = ("MIN", "STEP", "MAX", "LIMIT")
    return {
        f"VLLM_{name}_BUCKET_{word}": f"{value:g}" if isinstance(value, float) else str(value)
        for name, values in ranges.items()
        for word, value in zip(words, values, strict=False)
    }


def strategies(
    engine: str, limits: EngineLimits, reduce: tuple[int, int] | None = None
) -> list[tuple[str, str, dict[str, str]]]:
    """(name, algorithm, variables) of each strategy of the engine, its script's own first."""
    ranges = script_ranges(engine, limits)
    linear = {**ranges, "VLLM_EXPONENTIAL_BUCKETING": "false"}
    if engine == FORK_1_21:
        found = [("linear", "linear", linear), ("exponential", "exponential", {})]
    elif engine == FORK_1_22:
        found = [
            ("linear-limit", "linear-limit", linear),
            ("linear", "linear", linear),
            ("exponential", "exponential", {}),
        ]
    elif engine == FORK_DEEPSEEK:
        found = [("linear-limit", "linear-limit", ranges), ("linear", "linear", ranges)]
    else:
        env = {"VLLM_CONTIGUOUS_PA": "true"} if limits.contiguous_pa else {}
        found = [(name, name, env) for name in ("exponential", "pad", "linear")]
    if reduce is not None and ranges:
        short = {**script_ranges(engine, limits, reduce), "VLLM_EXPONENTIAL_BUCKETING": "false"}
        if engine == FORK_1_21:
            short[_SKIP_COMPILE] = "true"
        found.append((f"{found[0][0]} -r {reduce[0]},{reduce[1]}", found[0][1], short))
    return found


def judge(
    name: str,
    engine: str,
    algorithm: str,
    env: Mapping[str, str],
    limits: EngineLimits,
    shapes: Shapes,
    cost: StepTime,
) -> Judged:
    """One strategy, counted and scored; an engine's failure is part of the answer."""
    arguments = arguments_of(limits)
    try:
        prompt, decode = count(engine, algorithm, env, arguments)
        if prompt + decode > MOST_WRITTEN:
            return Judged(name, prompt, decode, None, None, None)
        buckets = engine_buckets(engine, algorithm, env, arguments)
    except BucketError as error:
        return Judged(name, 0, 0, None, None, None, str(error))
    if env.get(_SKIP_COMPILE) == "true":
        buckets = captured(buckets, _SCRIPT_CAPTURE)
    return judged(name, buckets, limits, shapes, cost)


def judged(name: str, buckets: Buckets, limits: EngineLimits, shapes: Shapes, cost: StepTime) -> Judged:
    """A bucket list, counted and scored."""
    return Judged(
        name,
        len(buckets.prompt),
        len(buckets.decode),
        buckets,
        uncovered(buckets, limits),
        score(buckets, shapes, cost),
    )
