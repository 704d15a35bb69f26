"""Choose the prompts of one prefill step, by simulation.

Several prompts in one step share its fixed time, but are padded to the longest, and need a bucket
for every rectangle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.buckets.bucket_file import Delivered, plan_for_engine, planned
from gaudi_launch.core.buckets.optimiser.bucket_planner import PRICE_TRACE, BucketGoal
from gaudi_launch.core.buckets.optimiser.full_load import at_full_load
from gaudi_launch.core.buckets.optimiser.padding_cost import score
from gaudi_launch.core.buckets.strategies import Judged
from gaudi_launch.core.predict.limits import CoverageQuestion, EngineLimits
from gaudi_launch.core.predict.simulator import Shapes, serve
from gaudi_launch.core.predict.step_time import StepTime
from gaudi_launch.core.predict.weighted_sum import import_numpy

COUNTS = (1, 2, 4, 8, 16)
# a smaller difference of step time is below the precision of the simulation
_LEAST = 0.005
# a number this much slower than the fastest is about as fast
_ALIKE = 1.02
# a gain after its graphs that is less is not worth a change
_WORTH = 0.02
# a mean TTFT of this much more is not worth any throughput
_LONGER = 1.02
# requests of a trace, which show the difference
_MOST_REQUESTS = 2000

Requests = tuple[tuple[float, int, int], ...]


@dataclass(frozen=True)
class Tried:
    """A number of prompts per step, as simulated at full load.

    ``time`` are the milliseconds of all steps, padded to buckets where ``graphs`` (of the warm-up)
    is not None; ``ttft`` is the mean in seconds.
    """

    prompts: int
    time: float
    ttft: float
    graphs: int | None = None


@dataclass(frozen=True)
class PromptsChoice:
    """The number with the best speed for its graphs.

    ``requests`` were concurrent; ``one`` is a single prompt per step, ``other`` the best number of
    several where one is chosen (None: no other is possible).
    """

    chosen: Tried
    one: Tried
    other: Tried | None
    requests: int

    @property
    def prompts(self) -> int:
        return self.chosen.prompts

    def reason(self) -> Message:
        """Return the gain of the choice and its cost."""
        values = {"count": self.prompts, "requests": self.requests}
        if self.prompts > 1:
            more = _more_graphs(self.chosen, self.one)
            percent = _percent(self.chosen, self.one)
            if more < 1:
                return message("plan.prompts_free", percent=percent, **values)
            return message("plan.prompts_several", percent=percent, graphs=more, **values)
        if self.other is None:
            return message("plan.prompts_only", count=self.prompts)
        values |= {"other": self.other.prompts}
        if self.other.graphs is None or self.other.time >= self.one.time:
            percent = _percent(self.other, self.one, sign="+")
            return message("plan.prompts_slower", percent=percent, **values)
        more = _more_graphs(self.other, self.one)
        return message(
            "plan.prompts_graphs", percent=_percent(self.other, self.one), graphs=more, **values
        )


def _percent(faster: Tried, one: Tried, sign: str = "-") -> str:
    """Return how many more tokens per second ``faster`` gives, in percent."""
    percent = round(100 * (one.time / faster.time - 1), 1)
    # no minus before a zero
    return f"{percent or 0.0:{sign}.1f}"


def _more_graphs(more: Tried, one: Tried) -> int:
    return (more.graphs or 0) - (one.graphs or 0)


@lru_cache(maxsize=32)
def choose_prompts(
    question: CoverageQuestion,
    ask: BucketGoal,
    cost: StepTime,
    *,
    own_file: bool = True,
    workload: Requests = (),
    traced: bool = False,
) -> PromptsChoice:
    """Return the prompts per step for as many requests as the engine admits.

    Their lengths are within the ranges of ``question``, or those of ``workload``. ``own_file``: the
    engine warms up the planned list, not one of its strategies; ``traced``: that list is planned
    for ``workload``. Pure, and cached by its arguments.
    """
    import_numpy()
    limits = question.limits
    requests = workload[:_MOST_REQUESTS]
    shapes: dict[int, Shapes] = {}
    tried: list[Tried] = []
    for prompts in counts(limits):
        shape, seen = _simulated(replace(limits, max_num_prefill_seqs=prompts), requests, cost)
        shapes[prompts] = shape
        tried.append(replace(seen, prompts=prompts))
    faster = _faster(tried)
    if not faster:
        fastest = min(tried[1:], key=lambda one: one.time, default=None)
        return PromptsChoice(tried[0], tried[0], fastest, limits.max_num_seqs)

    def padded(one: Tried) -> Tried:
        bounds = replace(limits, max_num_prefill_seqs=one.prompts)
        same = replace(question, limits=bounds)
        if traced:
            delivered = plan_for_engine(same, workload, ask, cost=cost)
        else:
            delivered = planned(same, ask, cost)
        row = used_row(delivered, own_file=own_file)
        if row.buckets is None:
            return replace(one, graphs=row.graphs)
        overhead = score(row.buckets, shapes[one.prompts], cost).overhead
        return replace(one, time=one.time * (1 + overhead), graphs=row.graphs)

    single = padded(tried[0])
    best = _cheapest(faster[::-1], padded, single)
    if _price(best, single) > (1 - _WORTH) * _price(single, single):
        return PromptsChoice(single, single, best, limits.max_num_seqs)
    return PromptsChoice(best, single, None, limits.max_num_seqs)


def _cheapest(falling: Sequence[Tried], padded: Callable[[Tried], Tried], single: Tried) -> Tried:
    """Return the first of ``falling`` numbers that is better than the next."""
    best = padded(falling[0])
    for one in falling[1:]:
        smaller = padded(one)
        if _price(smaller, single) > _price(best, single):
            break
        best = smaller
    return best


def _price(one: Tried, single: Tried) -> float:
    """Return the price relative to one prompt per step: time and added graphs."""
    more = (one.graphs or 0) - (single.graphs or 0)
    return one.time / single.time + PRICE_TRACE * more


def counts(limits: EngineLimits) -> tuple[int, ...]:
    """Return the numbers of prompts that a step of this engine can have."""
    most = min(limits.max_num_seqs, limits.max_num_batched_tokens // limits.block_size)
    return tuple(count for count in COUNTS if count <= max(1, most))


def used_row(delivered: Delivered, *, own_file: bool) -> Judged:
    """Return the list that is warmed up: the planned one or a strategy's."""
    rows = delivered.comparison
    if own_file and delivered.file is None:
        return rows[0]
    if not own_file:
        rows = rows[1:]
    return min(rows, key=lambda row: row.weight(delivered.price))


def _simulated(limits: EngineLimits, requests: Requests, cost: StepTime) -> tuple[Shapes, Tried]:
    import numpy as np

    if requests:
        shapes, times = serve(requests, limits, cost, concurrency=limits.max_num_seqs)
    else:
        shapes, times = at_full_load(limits, cost)
    ttft = 0.0
    if not np.isnan(times.first).all():
        ttft = float(np.nanmean(times.first - times.came))
    return shapes, Tried(limits.max_num_prefill_seqs, shapes.milliseconds(cost), ttft)


def _faster(tried: Sequence[Tried]) -> list[Tried]:
    """Return the numbers worth a plan, up to one that is about as fast as any.

    None of them delays first tokens.
    """
    single = tried[0]
    found = [
        one
        for one in tried[1:]
        if one.time < (1 - _LEAST) * single.time and one.ttft <= _LONGER * single.ttft
    ]
    enough = _ALIKE * min((one.time for one in found), default=0.0)
    last = next((at for at, one in enumerate(found) if one.time <= enough), 0)
    return found[: last + 1]
