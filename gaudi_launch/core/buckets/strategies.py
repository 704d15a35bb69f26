"""The strategies of an engine, with the ranges of its public start script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gaudi_launch.core.buckets.bucket_list import BucketError, Buckets, captured
from gaudi_launch.core.buckets.coverage import Holes, uncovered
from gaudi_launch.core.buckets.engine_buckets import engine_model
from gaudi_launch.core.buckets.families import EXPONENTIAL_SWITCH, family_named
from gaudi_launch.core.buckets.optimiser.padding_cost import Score, score
from gaudi_launch.core.buckets.script_ranges import reduced, variables
from gaudi_launch.core.predict.limits import EngineLimits
from gaudi_launch.core.predict.simulator import Shapes
from gaudi_launch.core.predict.step_time import StepTime

# vllm-gaudi's linear context grid can have hundreds of thousands of entries
MOST_WRITTEN = 200_000
# a script's -r without the pass over all buckets captures up to this length
# (HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh)
_SKIP_COMPILE, _SCRIPT_CAPTURE = "VLLM_SKIP_LAZY_WARMUP", 8192


@dataclass(frozen=True)
class Judged:
    """One strategy of an engine.

    ``buckets`` is None where it fails (``failure`` says how) or is too long to write.
    """

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
        """Return the overhead plus the cost of its graphs at this share of step time.

        Infinite with holes or no list; each strategy of an engine lacks some contexts.
        """
        if self.score is None or self.holes is None or self.holes.prompt or self.holes.decode:
            return float("inf")
        return self.score.overhead + price * self.graphs


def arguments_of(limits: EngineLimits) -> dict[str, Any]:
    """Return the limits in the form that `engine_buckets` expects."""
    return {**asdict(limits), "num_hpu_blocks": limits.cache_blocks or limits.num_blocks}


def script_ranges(
    family: str, limits: EngineLimits, reduce: tuple[int, int] | None = None
) -> dict[str, str]:
    """Return the bucket variables of the family's start script, if any.

    ``reduce`` is the scripts' -r.
    """
    rule = family_named(family).script
    if rule is None:
        return {}
    ranges = rule(limits)
    if reduce is not None:
        ranges = reduced(ranges, limits, reduce)
    return variables(ranges)


@dataclass(frozen=True)
class Strategy:
    """One way of an engine to build its list, under the name that a table shows."""

    name: str
    algorithm: str
    env: Mapping[str, str]


def strategies(
    family: str, limits: EngineLimits, reduce: tuple[int, int] | None = None
) -> list[Strategy]:
    """Return each algorithm of the family, that of its start script first."""
    rules = family_named(family)
    found = [
        Strategy(name, name, _script_environment(family, name, limits)) for name in rules.compared
    ]
    if reduce is not None and rules.script is not None:
        first = rules.compared[0]
        short = {**script_ranges(family, limits, reduce), EXPONENTIAL_SWITCH: "false"}
        if rules.skips_compilation:
            short[_SKIP_COMPILE] = "true"
        found.append(Strategy(f"{first} -r {reduce[0]},{reduce[1]}", first, short))
    return found


def _script_environment(family: str, algorithm: str, limits: EngineLimits) -> dict[str, str]:
    """Return what the start script exports for this algorithm."""
    rules = family_named(family)
    if rules.script is None:
        if not limits.contiguous_pa:
            return {}
        return {"VLLM_CONTIGUOUS_PA": "true"}
    if algorithm == "exponential":
        return {}
    ranges = script_ranges(family, limits)
    if "exponential" not in rules.models:
        return ranges
    return {**ranges, EXPONENTIAL_SWITCH: "false"}


def judge(
    family: str, strategy: Strategy, limits: EngineLimits, shapes: Shapes, cost: StepTime
) -> Judged:
    """Return one strategy, counted and scored.

    An engine's failure is part of the answer.
    """
    arguments = arguments_of(limits)
    name, algorithm, env = strategy.name, strategy.algorithm, strategy.env
    try:
        model = engine_model(family, algorithm, env, arguments)
        prompt, decode = model.prompt.count(), model.decode.count()
        if prompt + decode > MOST_WRITTEN:
            return Judged(name, prompt, decode, None, None, None)
        buckets = model.buckets
    except BucketError as error:
        return Judged(name, 0, 0, None, None, None, str(error))
    if env.get(_SKIP_COMPILE) == "true":
        buckets = captured(buckets, _SCRIPT_CAPTURE)
    return judged(name, buckets, limits, shapes, cost)


def judged(
    name: str, buckets: Buckets, limits: EngineLimits, shapes: Shapes, cost: StepTime
) -> Judged:
    """Return a bucket list, counted and scored."""
    return Judged(
        name,
        len(buckets.prompt),
        len(buckets.decode),
        buckets,
        uncovered(buckets, limits),
        score(buckets, shapes, cost),
    )
