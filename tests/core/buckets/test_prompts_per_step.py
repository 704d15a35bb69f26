"""Prompts of one step: chosen by simulation, with the gain and the cost in the reason."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets import prompts_per_step as module
from gaudi_launch.core.buckets.families import CONTEXT_LADDER, PLAIN_GRID
from gaudi_launch.core.buckets.optimiser.bucket_planner import BucketGoal
from gaudi_launch.core.buckets.prompts_per_step import (
    PromptsChoice,
    Tried,
    choose_prompts,
    counts,
    used_row,
)
from gaudi_launch.core.predict.limits import CoverageQuestion, EngineLimits
from gaudi_launch.core.predict.step_time import ONE_CARD_8B

SHORT, LONG = (30, 128, 4, 32), (30, 2000, 20, 300)


def limits(lengths: tuple[int, int, int, int], *, mixed: bool, seqs: int = 64) -> EngineLimits:
    budget = 2048 if mixed else 4096
    return EngineLimits(seqs, 1, budget, 4096, 3600, *lengths, mixed_steps=mixed, cache_blocks=3600)


def choose(lengths: tuple[int, int, int, int], *, mixed: bool) -> PromptsChoice:
    question = CoverageQuestion(
        CONTEXT_LADDER if mixed else PLAIN_GRID, limits(lengths, mixed=mixed)
    )
    return choose_prompts(question, BucketGoal(), ONE_CARD_8B)


@pytest.mark.parametrize("mixed", [False, True])
def test_short_prompts_share_a_step_and_long_ones_do_not(mixed: bool) -> None:
    short, long = choose(SHORT, mixed=mixed), choose(LONG, mixed=mixed)
    assert short.prompts > 1 and short.chosen.time < 0.9 * short.one.time
    assert (short.reason().id, short.reason().values["count"]) == (
        "plan.prompts_several",
        short.prompts,
    )
    assert long.prompts == 1
    assert (
        long.reason().id == "plan.prompts_slower"
        and long.other is not None
        and long.other.prompts > 1
    )


def test_the_reason_has_the_graphs_of_both_plans() -> None:
    found = choose(SHORT, mixed=True)
    assert found.chosen.graphs is not None and found.one.graphs is not None
    assert found.reason().values["graphs"] == found.chosen.graphs - found.one.graphs > 0


def test_past_requests_count_more_than_the_ranges() -> None:
    question = CoverageQuestion(CONTEXT_LADDER, limits((1, 3000, 1, 1000), mixed=True))
    chats = tuple((0.0, 40 + number % 60, 8 + number % 16) for number in range(400))
    wide = choose_prompts(question, BucketGoal(), ONE_CARD_8B)
    assert (
        wide.prompts
        == 1
        < choose_prompts(question, BucketGoal(), ONE_CARD_8B, workload=chats).prompts
    )


def test_a_step_has_no_more_prompts_than_the_engine_admits_and_its_budget_allows() -> None:
    most = limits(SHORT, mixed=True)
    assert counts(most) == (1, 2, 4, 8, 16)
    assert counts(replace(most, max_num_seqs=3)) == (1, 2)
    assert counts(replace(most, max_num_batched_tokens=512)) == (1, 2, 4)
    alone = CoverageQuestion(CONTEXT_LADDER, limits(SHORT, mixed=True, seqs=1))
    only = choose_prompts(alone, BucketGoal(), ONE_CARD_8B).reason()
    assert only == message("plan.prompts_only", count=1)


def test_fewer_prompts_are_tried_while_they_are_cheaper() -> None:
    one = Tried(1, 100.0, 1.0, 10)
    falling = [Tried(count, 0.0, 1.0) for count in (16, 8, 4, 2)]
    prices = {16: 90.0, 8: 85.0, 4: 86.0, 2: 50.0}
    asked: list[int] = []

    def padded(tried: Tried) -> Tried:
        asked.append(tried.prompts)
        return replace(tried, time=prices[tried.prompts], graphs=10)

    assert module._cheapest(falling, padded, one).prompts == 8
    assert asked == [16, 8, 4]


def test_the_list_that_is_warmed_up() -> None:
    class Row(SimpleNamespace):
        def weight(self, price: float) -> float:
            return float(self.time + price * self.graphs)

    ours, theirs, short = (
        Row(time=0.5, graphs=10),
        Row(time=0.2, graphs=50),
        Row(time=0.4, graphs=20),
    )

    def used(price: float, file: str | None, *, own_file: bool) -> object:
        delivered: Any = SimpleNamespace(comparison=(ours, theirs, short), file=file, price=price)
        return used_row(delivered, own_file=own_file)

    # variables of the planned list
    assert used(1.0, None, own_file=True) is ours
    found = [used(price, "file", own_file=True) for price in (0.001, 0.02)]
    assert found == [theirs, ours]
    found = [used(price, "file", own_file=False) for price in (0.001, 0.02)]
    assert found == [theirs, short]


def test_prompts_that_are_all_refused_have_no_first_token() -> None:
    refused = ((0.0, 9000, 4),)
    shapes, tried = module._simulated(limits(SHORT, mixed=False), refused, ONE_CARD_8B)
    assert (len(shapes.prompt), tried) == (0, Tried(1, 0.0, 0.0))


@pytest.mark.parametrize(
    ("other", "id", "values"),
    [
        (Tried(2, 90.0, 0.1, 60), "plan.prompts_several", {"percent": "11.1", "graphs": 20}),
        (Tried(2, 90.0, 0.1, 40), "plan.prompts_free", {"percent": "11.1"}),
    ],
)
def test_the_gain_is_in_tokens_per_second(other: Tried, id: str, values: dict[str, object]) -> None:
    one = Tried(1, 100.0, 0.2, 40)
    assert PromptsChoice(other, one, None, 32).reason().id == id
    assert PromptsChoice(other, one, None, 32).reason().values == {
        "count": 2,
        "requests": 32,
        **values,
    }


def test_one_prompt_a_step_says_what_more_would_have_given() -> None:
    one = Tried(1, 100.0, 0.2, 40)
    worse = PromptsChoice(one, one, Tried(4, 101.0, 0.2), 32).reason()
    assert (worse.id, worse.values["percent"], worse.values["other"]) == (
        "plan.prompts_slower",
        "-1.0",
        4,
    )
    same = PromptsChoice(one, one, Tried(4, 100.01, 0.2), 32).reason()
    assert same.values["percent"] == "+0.0"
    many = PromptsChoice(one, one, Tried(8, 99.0, 0.2, 400), 32).reason()
    assert (many.id, many.values["percent"], many.values["graphs"]) == (
        "plan.prompts_graphs",
        "1.0",
        360,
    )
