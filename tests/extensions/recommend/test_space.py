"""Configurations of a search, and its layouts: cards of a stage and stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.commands.inspect.fit import ServedLengths, request_for
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.predict.load import SharedPrefix
from gaudi_launch.extensions.recommend.analytic import Group, fits, fitting
from gaudi_launch.extensions.recommend.finder import best
from gaudi_launch.extensions.recommend.finder import find as search
from gaudi_launch.extensions.recommend.space import (
    Candidate,
    CardPool,
    SearchCase,
    SearchedEngine,
    layouts,
    lengths_of,
    members,
    on_other,
    own_arguments,
    ranges_of,
    request_of,
    samples,
    traffic_length,
    with_fewer_graphs,
)
from gaudi_launch.extensions.recommend.trial import Simulation
from gaudi_launch.extensions.recommend.view import compared
from tests.support.recommend import SHORT, SMALL, TableEngine, goal, searched, table_case, unplanned

LARGE = "meta-llama/Llama-3.1-405B-Instruct"
FORK, PLUGIN = "vllm-fork@1.22", "vllm-gaudi"


def staged_case(
    name: str = SMALL,
    engine: str = FORK,
    *,
    cards: tuple[int, ...] = (1, 2, 4, 8),
    nodes: int = 1,
    **changes: object,
) -> SearchCase:
    model = replace(known_model(name, False), **changes)  # type: ignore[arg-type]
    request = replace(request_for(model, ServedLengths()), max_prefill_seqs=1)
    searched = SearchedEngine(find(engine), request, ("bfloat16",), spreads=nodes > 1)
    pool = CardPool(accelerators()["gaudi2"], 8, nodes)
    return SearchCase(model, pool, (searched,), SHORT, (1000, 100), cards=cards, staged=True)


def test_an_engine_without_stages_has_one() -> None:
    case = staged_case(engine=PLUGIN)
    assert list(layouts(case, case.engines[0])) == [(1, 1), (2, 1), (4, 1), (8, 1)]
    assert [note.id for note in compared(case).notes] == ["recommend.no_stages"]
    plain = replace(staged_case(), staged=False)
    assert list(layouts(plain, plain.engines[0])) == [(1, 1), (2, 1), (4, 1), (8, 1)]


def test_a_class_without_stages_has_one() -> None:
    case = staged_case(architecture="AriaForConditionalGeneration")
    assert {stages for _, stages in layouts(case, case.engines[0])} == {1}


def test_stages_over_servers_are_parts_or_complete_servers() -> None:
    case = staged_case(LARGE, cards=(24,), nodes=3)
    # 24 cards do not divide the heads; 12 and 6 are across servers
    assert list(layouts(case, case.engines[0])) == [(8, 3), (4, 6)]
    assert {sample.hosts for sample in samples(case)} == {3}
    alone = replace(case.engines[0], spreads=False)
    assert list(layouts(replace(case, engines=(alone,)), alone)) == []


def test_a_model_for_two_servers_fits_them_only() -> None:
    assert not fits(staged_case(LARGE))
    assert fits(staged_case(LARGE, cards=(16,), nodes=2))


def test_a_virtual_engine_has_its_part_of_the_cache() -> None:
    case = staged_case(LARGE, cards=(16,), nodes=2)
    groups = {
        sample.pipeline: Group(case, case.engine(sample.engine), sample) for sample in samples(case)
    }
    one, two = groups[1].memory, groups[2].memory
    assert one is not None
    assert two is not None
    # 8 key-value heads: 16 cards keep each of them twice, two stages of 8 once
    assert two.tokens * 2 > 1.5 * one.tokens
    assert two.tokens < 1.2 * one.tokens
    candidate = replace(groups[2].sample, batch=4, tokens=2048)
    quick = Simulation(case, goal("throughput"), unplanned(case)).quick(candidate, groups[2])
    assert quick.setup is not None
    assert quick.served is not None
    assert quick.setup.limits.num_blocks * 128 <= two.tokens
    assert (quick.served.cards, quick.served.nodes, quick.served.replicas) == (16, 2, 1)


def test_stages_are_the_answer_where_tensors_cannot_be_divided() -> None:
    # 7 heads: a card alone is too small, and two cannot share them
    case = staged_case(cards=(1, 2))
    odd = replace(case.model, heads=7, kv_heads=7, parameters=70_000_000_000, layers=80)
    large = replace(case, model=replace(odd, weight_bytes=None))
    found = search(large, goal("balanced"), unplanned(large))
    assert found.winner is not None
    assert (found.winner.candidate.cards, found.winner.candidate.pipeline) == (1, 2)
    assert found.evidence is not None
    assert not found.evidence.near


def test_stages_lose_to_a_fitted_layout_even_where_they_are_faster() -> None:
    case = staged_case(cards=(2,))
    simulation = Simulation(case, goal("throughput"), unplanned(case))
    trials = {
        each.layout: simulation.exact(each) for each in fitting(case).candidates if each.batch == 64
    }
    faster = replace(trials["1x2"], score=2 * trials["2"].score)
    assert best(case, [faster, trials["2"]]) is trials["2"]
    assert best(case, [faster]) is faster


def test_a_fitted_layout_is_planned_where_stages_are_predicted_faster() -> None:
    case = staged_case(cards=(2,))
    found = search(case, goal("throughput"), unplanned(case))
    assert found.winner is not None
    assert found.winner.candidate.layout == "2"
    (stages,) = [each for each in found.sensitivity if each.field == "layout"]
    assert stages.value == "1x2"
    assert {trial.candidate.layout for trial in found.front} == {"2"}


def test_experts_are_compared_unless_an_option_decides() -> None:
    case = staged_case("Qwen/Qwen3-30B-A3B", PLUGIN, cards=(2, 4))
    sizes = compared(case)
    assert sizes.experts == (0, 2, 4)
    assert [note.id for note in sizes.notes] == ["recommend.no_stages", "recommend.experts_equal"]
    found = search(case, goal("balanced"), unplanned(case))
    (experts,) = [each for each in found.sensitivity if each.field == "experts"]
    assert (experts.value, experts.factor) == ("0", 1.0)
    request = replace(case.engines[0].request, extra=("--no-enable-expert-parallel",))
    given = replace(case, engines=(replace(case.engines[0], request=request),))
    assert compared(given).experts == (0,)
    assert [note.id for note in compared(given).notes][1] == "recommend.experts_given"
    again = search(given, goal("balanced"), unplanned(given))
    assert not [each for each in again.sensitivity if each.field == "experts"]


ONE = Candidate("toy", "bf16", 1, 8, 1, 2048, 4096, False)
# an engine whose steps mix prompts with decoding
MIXED = TableEngine(scheduling="v1")
SHARED = (SharedPrefix(0, 0), SharedPrefix(64, 100))


@pytest.mark.parametrize(
    ("changes", "layout", "world", "last_resort", "cluster", "splits"),
    [
        ({}, "1", 1, False, False, False),
        ({"cards": 8}, "8", 8, False, False, False),
        ({"cards": 2, "pipeline": 4}, "2x4", 8, True, True, False),
        ({"cards": 8, "pipeline": 2, "hosts": 2}, "8x2", 16, False, True, False),
        ({"cards": 16, "hosts": 2}, "16", 16, False, True, True),
    ],
)
def test_what_a_layout_says(
    changes: dict[str, Any], layout: str, world: int, last_resort: bool, cluster: bool, splits: bool
) -> None:
    found = replace(ONE, **changes)
    assert (found.layout, found.world) == (layout, world)
    assert (found.is_last_resort, found.needs_cluster) == (last_resort, cluster)
    assert found.splits_layers is splits


def test_the_replicas_of_a_pool() -> None:
    pool = table_case(nodes=3).pool
    found = [pool.most_replicas(cards) for cards in (2, 8, 16, 32)]
    assert (found, table_case(nodes=None).pool.most_replicas(2)) == ([12, 3, 1, 0], None)


@pytest.mark.parametrize(
    ("longest", "positions", "length"),
    [(0, None, 128), (300, None, 384), (384, 4096, 384), (385, 4096, 512), (9000, 4000, 4096)],
)
def test_the_length_of_the_traffic_is_in_blocks(
    longest: int, positions: int | None, length: int
) -> None:
    case = table_case()
    model = replace(case.model, max_position_embeddings=positions)
    assert traffic_length(replace(case, model=model, longest=longest)) == length


def test_the_lengths_to_try() -> None:
    case = table_case()
    case = replace(case, model=replace(case.model, max_position_embeddings=1024), longest=700)
    request = case.engines[0].request
    assert lengths_of(case, request) == (768,)
    # an eighth apart, in blocks, down to the traffic's
    long = replace(case, context=True)
    assert lengths_of(long, request) == (1024, 896, 768)
    assert lengths_of(long, replace(request, max_model_len=512)) == (512,)
    shorter = replace(long, model=replace(case.model, max_position_embeddings=None))
    assert lengths_of(shorter, request) == (768,)


def test_a_sample_of_each_type_and_number_of_cards() -> None:
    case = replace(table_case(TableEngine(caches=True)), cards=(1, 2))
    both = replace(case, engines=(replace(case.engines[0], dtypes=("bf16", "fp8")),))
    plain = Candidate("toy", "bf16", 1, 1, 1, 128, 128, True)
    assert list(samples(both)) == [
        plain,
        replace(plain, cards=2),
        replace(plain, dtype="fp8"),
        replace(plain, dtype="fp8", cards=2),
    ]
    refused = replace(case, engines=(replace(case.engines[0], refused=frozenset({1})),))
    assert list(samples(refused)) == [replace(plain, cards=2)]
    heads = replace(case, model=replace(case.model, heads=7), cards=(1, 2, 7))
    assert list(samples(heads)) == [plain, replace(plain, cards=7)]


def test_a_sample_of_each_type_of_cache_and_of_prefixes() -> None:
    engine = TableEngine(fp8=("--kv-cache-dtype", "fp8"))
    case = replace(table_case(engine), cards=(1,))
    plain = Candidate("toy", "bf16", 1, 1, 1, 128, 128, False)
    small = replace(plain, kv_dtype="fp8_inc")
    assert list(samples(case)) == [plain, small]
    shared = replace(case, load=replace(case.load, shared=SHARED))
    assert list(samples(shared)) == [
        plain,
        replace(plain, prefix_caching=True),
        small,
        replace(small, prefix_caching=True),
    ]

    def kept(*words: str, engine: TableEngine = engine) -> list[Candidate]:
        return list(samples(replace(shared, engines=(searched(engine, extra=words),))))

    # given options decide
    assert kept("--kv-cache-dtype", "auto") == [plain, replace(plain, prefix_caching=True)]
    assert kept("--no-enable-prefix-caching") == [plain, small]
    assert kept("--enable-prefix-caching", engine=replace(engine, fp8=())) == [plain]
    assert kept(engine=replace(engine, turns=False)) == [plain, small]
    first = replace(case.pool, accelerator=accelerators()["gaudi1"])
    assert list(samples(replace(case, pool=first))) == [plain]


def test_experts_are_divided_over_the_cards_of_a_mixture() -> None:
    case = table_case()
    plain, model = case.engines[0], replace(case.model, moe=True)
    assert (plain.experts(case.model, 4), plain.experts(model, 4)) == (0, 4)
    not_divided = searched(TableEngine(), extra=("--no-enable-expert-parallel",))
    divided = searched(TableEngine(), extra=("--enable-expert-parallel",))
    assert (not_divided.experts(model, 4), divided.experts(model, 4)) == (0, 4)
    decided = [each.decides_experts() for each in (plain, not_divided, divided)]
    assert decided == [False, True, True]


def shapes(engine: TableEngine, sample: Candidate = ONE, **given: Any) -> list[tuple[int, ...]]:
    """Return batch, prompts and tokens of the members of a group."""
    case = table_case(engine, **given)
    return [(each.batch, each.prompts, each.tokens) for each in members(case, sample)]


def test_prompts_of_a_step_are_no_more_than_requests() -> None:
    # a step has room for the longest prompts, in blocks, and for the longest request
    assert shapes(TableEngine(), replace(ONE, length=384), max_num_seqs=8) == [
        (8, 1, 384),
        (8, 2, 384),
        (8, 4, 512),
        (8, 8, 1024),
    ]
    assert shapes(TableEngine(), max_num_seqs=3) == [(3, 1, 4096), (3, 2, 4096)]
    batches = {batch for batch, _, _ in shapes(TableEngine())}
    assert batches == {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
    assert (16, 16, 4096) in shapes(TableEngine())


def test_given_options_are_the_only_ones() -> None:
    given: Any = {"max_num_seqs": 24, "max_prefill_seqs": 3, "max_num_batched_tokens": 3072}
    assert shapes(TableEngine(), **given) == [(24, 3, 3072)]
    lacking = TableEngine(lacks=("--max-prefill-seqs", "-t"))
    assert shapes(lacking, max_num_seqs=24) == [(24, 1, 4096)]


def test_a_mixed_step_has_no_more_tokens_than_all_its_prompts() -> None:
    assert shapes(MIXED, replace(ONE, length=128), max_num_seqs=2) == [(2, 1, 2048), (2, 2, 2048)]
    assert shapes(MIXED, max_num_seqs=2) == [
        *((2, 1, 2048), (2, 1, 4096)),
        *((2, 2, 2048), (2, 2, 4096), (2, 2, 8192)),
    ]
    most = shapes(MIXED, max_num_seqs=8, max_prefill_seqs=8)
    assert [tokens for _, _, tokens in most] == [2048, 4096, 8192, 16384]
    # a step has a token of each request at least
    large = shapes(MIXED, max_num_seqs=3000, max_prefill_seqs=1)
    assert [tokens for _, _, tokens in large] == [4096]
    huge = shapes(MIXED, max_num_seqs=20000, max_prefill_seqs=1)
    assert [tokens for _, _, tokens in huge] == [20096]


def test_the_same_configuration_on_another_engine() -> None:
    case = table_case()
    mine = replace(ONE, prompts=4, tokens=8192, padding="0.5", kv_dtype="fp8_inc")
    other = searched(replace(MIXED, exact="other", caches=True))
    theirs = replace(mine, engine="other", prefix_caching=True, padding="", kv_dtype="")
    assert on_other(case, mine, other) == [theirs, replace(theirs, prompts=1, tokens=4096)]
    # without prompts of a step: once
    single = searched(TableEngine("single", lacks=("--max-prefill-seqs",)))
    assert on_other(case, mine, single) == [
        replace(mine, engine="single", prompts=1, tokens=4096, padding="", kv_dtype="")
    ]
    # each engine has its own layouts
    assert on_other(case, replace(mine, pipeline=2), other) == []


def test_variants_with_fewer_graphs() -> None:
    mine = replace(ONE, prefix_caching=True)
    coarse, plain = replace(mine, padding="0.5"), replace(mine, prefix_caching=False)

    def found(candidate: Candidate = mine, engine: Any = None, **given: Any) -> list[Candidate]:
        return with_fewer_graphs(table_case(engine or TableEngine(), **given), candidate)

    assert found() == [coarse, plain]
    assert found(ONE) == [replace(ONE, padding="0.5")]
    assert found(padding_limit="0.1") == [plain]
    assert found(reduce=(8, 128)) == [plain]
    assert found(engine=TableEngine(lacks=("--padding-limit",))) == [plain]
    assert found(engine=TableEngine(turns=False)) == [coarse]
    assert found(extra=("--enable-prefix-caching",)) == [coarse]


def test_a_request_has_given_options_and_searched_values() -> None:
    case = table_case(extra=("--seed", "1"), modules=(0, 1), padding_limit="0.2")
    mine = replace(ONE, cards=2, prompts=4, prefix_caching=True)
    given = case.engines[0].request
    expected = replace(
        given,
        cards=2,
        modules=None,
        max_num_seqs=8,
        max_prefill_seqs=4,
        max_num_batched_tokens=2048,
        max_model_len=4096,
        input_range=(1, 100),
        output_range=(1, 10),
        padding_limit="0.2",
        extra=("--seed", "1", "--prefixes", "True"),
    )
    assert request_of(case, mine) == expected
    assert request_of(case, replace(mine, padding="0.5")) == replace(expected, padding_limit="0.5")


def test_a_request_has_no_option_that_the_engine_lacks() -> None:
    lacks = ("--max-prefill-seqs", "-t", "-i", "-o")
    case = table_case(TableEngine(lacks=lacks), max_prefill_seqs=7)
    found = request_of(case, ONE)
    assert found == replace(
        case.engines[0].request, cards=1, max_num_seqs=8, max_model_len=4096, max_prefill_seqs=7
    )


def test_arguments_of_a_candidate_that_are_none_of_our_options() -> None:
    engine = TableEngine(fp8=("--kv-cache-dtype", "fp8"), caches=True)
    case = table_case(engine)
    small = replace(ONE, kv_dtype="fp8_inc")
    assert own_arguments(case, replace(ONE, prefix_caching=True)) == ()
    assert own_arguments(case, small) == ("--prefixes", "False", "--kv-cache-dtype", "fp8")
    fixed = table_case(replace(engine, turns=False))
    assert own_arguments(fixed, small) == ("--kv-cache-dtype", "fp8")


@pytest.mark.parametrize(
    ("lengths", "length", "given", "ranges"),
    [
        ((100, 10), 4096, {}, ((1, 100), (1, 10))),
        # within the maximum of both, of which an answer has a token at least
        ((5000, 6000), 4096, {}, ((1, 4095), (1, 4096))),
        ((0, 0), 4096, {}, ((1, 1), (1, 1))),
        ((100, 10), 4096, {"input_range": (5, 50)}, ((5, 50), (1, 10))),
        ((100, 10), 4096, {"output_range": (2, 4)}, ((1, 100), (2, 4))),
    ],
)
def test_ranges_are_the_given_ones_or_the_traffics(
    lengths: tuple[int, int],
    length: int,
    given: dict[str, Any],
    ranges: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    case = replace(table_case(**given), lengths=lengths)
    assert ranges_of(case, replace(ONE, length=length)) == ranges


def test_other_engines_of_a_case_are_found_by_name() -> None:
    other = searched(TableEngine("other"))
    case = replace(table_case(), others=(other,))
    assert (case.engine("toy"), case.engine("other")) == (case.engines[0], other)


@pytest.mark.parametrize(
    ("total", "pairs"),
    [
        (32, [(32, 1), (16, 2), (8, 4), (4, 8)]),
        # twelve cards are no part of servers, and three of none
        (24, [(24, 1), (8, 3), (4, 6)]),
        (8, [(8, 1), (4, 2), (2, 4), (1, 8)]),
        (6, [(6, 1), (3, 2), (2, 3), (1, 6)]),
        (16, [(16, 1), (8, 2), (4, 4), (2, 8)]),
    ],
)
def test_stages_are_parts_of_a_server_or_complete_servers(
    total: int, pairs: list[tuple[int, int]]
) -> None:
    case = replace(table_case(TableEngine(stages=True)), cards=(total,), staged=True)
    assert list(layouts(case, replace(case.engines[0], spreads=True))) == pairs


def test_which_sizes_were_compared() -> None:
    case = replace(table_case(TableEngine(stages=True)), cards=(2, 4), staged=True)
    found = compared(case)
    assert (found.layouts, found.tensor, found.stages, found.experts) == (
        ("2", "1x2", "4", "2x2", "1x4"),
        (1, 2, 4),
        (1, 2, 4),
        (),
    )
    assert [note.id for note in found.notes] == ["recommend.stages_assumed"]
    spread = replace(case, engines=(replace(case.engines[0], spreads=True),))
    assert [note.id for note in compared(spread).notes] == ["recommend.spread_assumed"]
