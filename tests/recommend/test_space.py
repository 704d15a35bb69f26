"""Layouts of a search: cards of a stage and stages."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.app.fit import ServedLengths, request_for
from gaudi_launch.engines.registry import find
from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.profiles import known_model
from gaudi_launch.recommend.analytic import Group, fits, fitting
from gaudi_launch.recommend.compared import compared
from gaudi_launch.recommend.finder import best
from gaudi_launch.recommend.finder import find as search
from gaudi_launch.recommend.space import CardPool, SearchCase, SearchedEngine, layouts, samples
from gaudi_launch.recommend.trial import Simulation
from tests.support.recommend import SMALL, goal, short_traffic

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
    return SearchCase(
        model, pool, (searched,), short_traffic(), (1000, 100), cards=cards, staged=True
    )


def test_each_number_of_cards_is_divided_into_stages() -> None:
    case = staged_case(cards=(4, 8))
    assert list(layouts(case, case.engines[0])) == [
        *((4, 1), (2, 2), (1, 4)),
        *((8, 1), (4, 2), (2, 4), (1, 8)),
    ]


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
    quick = Simulation(case, goal("throughput")).quick(candidate, groups[2])
    assert quick.replica is not None
    assert quick.served is not None
    assert quick.replica.limits.num_blocks * 128 <= two.tokens
    assert (quick.served.cards, quick.served.nodes, quick.served.replicas) == (16, 2, 1)


def test_stages_are_the_answer_where_tensors_cannot_be_divided() -> None:
    # 7 heads: a card alone is too small, and two cannot share them
    case = staged_case(cards=(1, 2))
    odd = replace(case.model, heads=7, kv_heads=7, parameters=70_000_000_000, layers=80)
    found = search(replace(case, model=replace(odd, weight_bytes=None)), goal("balanced"))
    assert found.winner is not None
    assert (found.winner.candidate.cards, found.winner.candidate.pipeline) == (1, 2)
    assert found.evidence is not None
    assert not found.evidence.near


def test_stages_lose_to_a_fitted_layout_even_where_they_are_faster() -> None:
    case = staged_case(cards=(2,))
    simulation = Simulation(case, goal("throughput"))
    trials = {
        each.layout: simulation.exact(each) for each in fitting(case).candidates if each.batch == 64
    }
    faster = replace(trials["1x2"], score=2 * trials["2"].score)
    assert best(goal("throughput"), [faster, trials["2"]]) is trials["2"]
    assert best(goal("throughput"), [faster]) is faster


def test_a_fitted_layout_is_planned_where_stages_are_predicted_faster() -> None:
    found = search(staged_case(cards=(2,)), goal("throughput"))
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
    found = search(case, goal("balanced"))
    (experts,) = [each for each in found.sensitivity if each.field == "experts"]
    assert (experts.value, experts.factor) == ("0", 1.0)
    request = replace(case.engines[0].request, extra=("--no-enable-expert-parallel",))
    given = replace(case, engines=(replace(case.engines[0], request=request),))
    assert compared(given).experts == (0,)
    assert [note.id for note in compared(given).notes][1] == "recommend.experts_given"
    assert not [
        each for each in search(given, goal("balanced")).sensitivity if each.field == "experts"
    ]
