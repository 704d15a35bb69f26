"""Options of ``recommend`` as a case, and its answer as options of ``serve``."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gaudi_launch.cli.main import app
from gaudi_launch.commands.estimate import EstimateOptions, predicted
from gaudi_launch.commands.inspect.fit import InspectOptions, ServedLengths, fit
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.host import snapshot
from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.simulated import make, server_of
from gaudi_launch.core.launch.command_line import serve_command
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.predict.simulate import simulate
from gaudi_launch.extensions.recommend import trial
from gaudi_launch.extensions.recommend.case import (
    RecommendCase,
    Recommended,
    RecommendOptions,
    cluster_command,
    launch_options,
    read,
    save,
    solve,
)
from gaudi_launch.extensions.recommend.space import Candidate, CardPool, samples
from gaudi_launch.extensions.recommend.view import compared
from tests.support.machines import link_tree
from tests.support.recommend import SMALL
from tests.support.refusals import failing


def case_of(launch: Mapping[str, Any] | None = None, **given: Any) -> RecommendCase:
    words = {"model": SMALL, "machine": "gaudi2", **(launch or {})}
    return read(LaunchOptions(**words), replace(RecommendOptions(), **given))


def test_a_part_of_the_requests_ranks_and_does_not_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By 60 requests 984 cards were found where 84 are enough."""
    chance, time = random.Random(13), 0.0
    lines = ["t_seconds,input_tokens,output_tokens"]
    rate, mean = chance.choice([1, 3, 10]), chance.choice([4000, 8000, 12_000])
    for _ in range(300):
        time += chance.expovariate(rate)
        lines.append(f"{time},{int(mean * chance.uniform(0.3, 1.7))},{chance.randint(20, 400)}")
    (tmp_path / "trace.csv").write_text("\n".join(lines))
    monkeypatch.setattr(trial, "_COUNTED", 60)
    given = {"trace": str(tmp_path / "trace.csv"), "ttft": "5s", "tpot": "30ms"}
    winner = solve(case_of({"model": "Qwen/Qwen3-32B"}, **given)).found.winner
    assert winner is not None and winner.served is not None and winner.served.cards == 84


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "balanced"),
        ({"ttft": "1s"}, "throughput"),
        ({"rate": "5/s"}, "cost"),
        ({"concurrency": "5", "e2e": "9s"}, "cost"),
        ({"goal": "latency", "rate": "5/s"}, "latency"),
    ],
)
def test_the_goal_follows_from_load_and_targets(given: dict[str, str], name: str) -> None:
    assert case_of(None, **given).goal.name == name


@pytest.mark.parametrize(
    ("launch", "id", "code"),
    [
        # for any number of cards
        ({"extra": ("--kv-cache-dtype", "x")}, "options.refused", ExitCode.USAGE),
        ({"engine": "cpu"}, "fit.engine", ExitCode.USAGE),
    ],
)
def test_options_that_no_plan_has_are_refused(
    launch: dict[str, Any], id: str, code: ExitCode
) -> None:
    with failing(id, code):
        case_of(launch)


def test_without_cards_a_server_is_assumed_and_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    case = case_of({"machine": None})
    product = accelerators()["gaudi2"]
    assert (case.machine, case.search.pool.accelerator) == (server_of(product.id), product)
    assumed = message("recommend.assumed_machine", product=product.title, cards=product.cards)
    assert assumed in case.search.notes


LARGE_MODEL = "meta-llama/Llama-3.1-70B-Instruct"


def test_the_best_answer_that_has_a_plan_is_taken() -> None:
    launch = LaunchOptions(
        model=LARGE_MODEL,
        machine="gaudi2",
        dtype="bf16",
        max_num_seqs=32,
        max_num_batched_tokens=2048,
        max_prefill_seqs=1,
    )
    case = read(launch, RecommendOptions(goal="latency"))
    # cards that were taken since the search
    for busy, cards in (("", 8), ("+busy=4,5,6,7", 4)):
        answer = solve(replace(case, machine=f"simulated:hls2{busy}"))
        assert answer.launch is not None and answer.plan is not None
        assert answer.launch.cards == cards
    with failing("placement.none_free", ExitCode.MACHINE):
        solve(replace(case, machine="simulated:hls2+busy=0,1,2,3,4,5,6,7"))


@pytest.mark.parametrize(
    ("given", "id"),
    [
        ({"goal": "speed"}, "recommend.goal"),
        ({"rate": "5/s", "concurrency": "5"}, "capacity.one_demand"),
        ({"arrivals": "trace"}, "capacity.arrivals"),
        ({"ttft": "soon"}, "capacity.bad_time"),
        ({"max_start": "soon"}, "plan.time"),
        ({"nodes": "100001"}, "plan.number"),
    ],
)
def test_impossible_options_are_refused(given: dict[str, str], id: str) -> None:
    with failing(id, ExitCode.USAGE):
        case_of(None, **given)


def test_a_length_that_the_model_lacks_is_refused() -> None:
    with failing("plan.too_long", ExitCode.MODEL):
        case_of({"max_model_len": "1M"})


BUSY = {"machine": "simulated:hls2+busy=0,1"}


@pytest.mark.parametrize(
    ("launch", "given", "visible", "cards", "nodes"),
    [
        ({}, {}, "", 8, 1),
        ({}, {"rate": "5/s"}, "", 8, None),
        ({}, {"rate": "5/s", "nodes": "3"}, "", 8, 3),
        (BUSY, {}, "", 6, 1),
        (BUSY, {"nodes": "3"}, "", 6, 3),
        (BUSY | {"modules": "2,3,4"}, {}, "", 3, 1),
        # modules of the environment are those of this machine
        (BUSY, {}, "1,2,3", 6, 1),
        ({"machine": None}, {}, "1,2,3", 2, 1),
    ],
)
def test_cards_are_free_ones_or_those_of_servers(
    launch: dict[str, Any],
    given: dict[str, str],
    visible: str,
    cards: int,
    nodes: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link_tree("hls2+busy=0,1", tmp_path)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", visible)
    case = case_of(launch, **given)
    assert case.search.pool == CardPool(accelerators()["gaudi2"], cards, nodes)
    assert case.machine == launch.get("machine", server_of("gaudi2"))


@pytest.mark.parametrize(
    ("host", "id"),
    [
        (make("hls2+busy=0,1,2,3,4,5,6,7"), "recommend.no_free_card"),
        (Host(), "recommend.unknown_card"),
    ],
)
def test_a_machine_without_a_card_that_can_be_used_is_refused(
    host: Host, id: str, tmp_path: Path
) -> None:
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(snapshot.to_json(host)))
    with failing(id, ExitCode.MACHINE):
        case_of({"machine": str(file)})


def test_a_cluster_has_hosts_to_be_named() -> None:
    launch = LaunchOptions(model="org/m", cards=8)
    two = Candidate("vllm-gaudi", "bfloat16", 8, 32, 1, 2048, 4096, False, pipeline=2, hosts=2)
    head = ("gaudi-launch", "cluster", "up", "org/m", "--hosts")
    sizes = ("--tensor-parallel", "8", "--pipeline-parallel", "2")
    assert cluster_command(launch, two) == (*head, "HOST1,HOST2", *sizes, "-n", "8")
    local = replace(two, hosts=1, pipeline=1)
    assert cluster_command(launch, local) == (*head, "local", *sizes[:2], "-n", "8")


def test_lengths_that_were_not_given_are_assumed_and_stated() -> None:
    case = case_of()
    assert case.search.lengths == (1024, 256)
    assert case.search.notes[0].id == "recommend.assumed_lengths"


def test_given_options_stay_and_searched_ones_are_added() -> None:
    case = case_of(
        {"cards": "2", "input_range": "64,512", "output_range": "8,64", "max_num_seqs": "48"}
    )
    sample = next(samples(case.search))
    launch = launch_options(case, replace(sample, batch=48, prompts=4, tokens=4096, dtype="fp8"))
    assert serve_command(launch) == (
        *("gaudi-launch", "serve", SMALL, "-n", "2", "-d", "fp8", "-i", "64,512", "-o", "8,64"),
        *("-t", "4096", "-l", "640", "-b", "48", "--max-prefill-seqs", "4"),
    )


def test_an_argument_after_the_dashes_is_binding() -> None:
    case = case_of(
        {"extra": ("--max-num-seqs", "24", "--seed", "1"), "dtype": "bf16", "cards": "1"}
    )
    answer = solve(case)
    assert answer.plan is not None and answer.launch is not None
    assert answer.plan.args.last("--max-num-seqs") == "24"
    assert {trial.candidate.batch for trial in answer.found.trials} == {24}
    assert "-b" not in serve_command(answer.launch)


def test_the_plan_is_that_of_the_printed_command() -> None:
    from gaudi_launch.core.launch.prepared import prepare

    answer = solve(case_of({"dtype": "bf16", "cards": "1", "max_prefill_seqs": "1"}))
    assert answer.plan is not None and answer.launch is not None and answer.found.winner is not None
    machine = answer.case.machine
    assert prepare(replace(answer.launch, machine=machine)).plan() == answer.plan
    candidate = answer.found.winner.candidate
    args = answer.plan.args
    assert args.last("--max-num-seqs") == str(candidate.batch)
    assert args.last("--max-num-batched-tokens") == str(candidate.tokens)
    assert args.last("--max-model-len") == str(candidate.length) == "1280"


# the short form of scripts/acceptance/recommend.py
LOAD = {"rate": "12/s", "ttft": "1s", "tpot": "30ms"}
LENGTHS = {"input_range": "100,1000", "output_range": "20,200", "dtype": "bf16"}


@cache
def loaded_answer() -> Recommended:
    return solve(case_of(LENGTHS, **LOAD))


def test_fit_accepts_the_answer() -> None:
    answer = loaded_answer()
    winner, plan = answer.found.winner, answer.plan
    assert winner is not None and plan is not None
    candidate = winner.candidate
    lengths = ServedLengths(str(candidate.length), str(candidate.batch))
    label = plan.engine.label
    options = InspectOptions(SMALL, str(candidate.cards), "gaudi2", "bf16", label, lengths)
    assert [row.fits for row in fit(answer.found.case.model, options).table.rows] == [True]


def test_the_targets_hold_for_requests_of_another_seed() -> None:
    found = loaded_answer().found
    winner, load = found.winner, found.case.load
    assert winner is not None and winner.served is not None and winner.setup is not None
    other = replace(load, requests=tuple(load.sent(8192, 7).requests))
    outcome = simulate(winner.setup, other.at_rate(found.goal.rate / winner.served.replicas))
    assert outcome is not None
    assert (outcome.ttft.at(95) <= 1.0, outcome.tpot.at(95) <= 0.03) == (True, True)


def test_estimate_prints_what_recommend_prints() -> None:
    answer = loaded_answer()
    served = answer.found.winner.served if answer.found.winner is not None else None
    assert answer.launch is not None and served is not None
    given = EstimateOptions(rate=12 / served.replicas)
    shown = predicted(answer.launch, given)
    assert shown.outcome.ttft.at(95) == pytest.approx(served.ttft, rel=1e-9)
    assert shown.outcome.tpot.at(95) == pytest.approx(served.tpot, rel=1e-9)
    assert shown.plan == answer.plan


def _trace(folder: Path, *, shared: bool) -> str:
    rows = [
        {
            "timestamp": 100 * number,
            "input_length": 4096,
            "output_length": 64,
            "hash_ids": [*range(7), 100 + number] if shared else [9 * number],
        }
        for number in range(600)
    ]
    file = folder / "trace.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return str(file)


def test_prefix_caching_is_searched_where_a_trace_shares_prefixes(tmp_path: Path) -> None:
    launch = {"dtype": "bf16", "cards": "1", "max_num_seqs": "32", "max_prefill_seqs": "1"}
    case = case_of(launch, trace=_trace(tmp_path, shared=True), goal="throughput")
    assert {each.prefix_caching for each in samples(case.search)} == {True, False}
    assert "capacity.shared_prefixes" in {note.id for note in case.search.notes}
    plain = case_of(launch, trace=_trace(tmp_path, shared=False), goal="throughput")
    assert {each.prefix_caching for each in samples(plain.search)} == {True}
    with_shared, without = solve(case).found.winner, solve(plain).found.winner
    assert with_shared is not None and without is not None
    assert with_shared.candidate.prefix_caching
    assert with_shared.score > 1.5 * without.score


def test_an_option_decides_about_prefix_caching(tmp_path: Path) -> None:
    launch = {"extra": ("--no-enable-prefix-caching",)}
    case = case_of(launch, trace=_trace(tmp_path, shared=True), goal="throughput")
    assert {each.prefix_caching for each in samples(case.search)} == {False}


def test_releases_are_searched_where_they_differ_for_the_model() -> None:
    plain = case_of()
    assert len(plain.search.engines) == 1
    options = LaunchOptions(model="ibm-granite/granite-4.0-h-small", machine="gaudi2")
    case = read(options, RecommendOptions())
    assert len(case.search.engines) > 1
    named = read(replace(options, engine="vllm-gaudi"), RecommendOptions())
    assert [each.name for each in named.search.engines] == [case.search.engines[0].name]
    other = case.search.engines[1].name
    sample = next(each for each in samples(case.search) if each.engine == other)
    assert launch_options(case, sample).engine == other


def test_an_engine_for_complete_servers_is_searched_on_them() -> None:
    case = read(
        LaunchOptions(model="deepseek-ai/DeepSeek-R1", machine="gaudi2"), RecommendOptions()
    )
    assert {each.cards for each in samples(case.search)} == {8}


def test_weights_with_scales_of_the_cache_may_keep_it_in_fp8() -> None:
    case = case_of()
    stored = {"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}}
    model = replace(case.search.model, config={**case.search.model.config, **stored})
    search = replace(case.search, model=model)
    assert {each.kv_dtype for each in samples(case.search)} == {""}
    assert {each.kv_dtype for each in samples(search)} == {"", "fp8_inc"}
    candidate = next(each for each in samples(search) if each.kv_dtype)
    launch = launch_options(replace(case, search=search), candidate)
    assert launch.extra == ("--kv-cache-dtype", "fp8_inc")


LARGE = {"model": "meta-llama/Llama-3.1-405B-Instruct", "dtype": "bf16", "max_num_seqs": "8"}
SERVERS = {"machine": "simulated:hls2", "max_prefill_seqs": "1"}


def large_case(given: Mapping[str, Any], **launch: str) -> RecommendCase:
    options = LaunchOptions(**{**LARGE, **SERVERS, **launch})  # type: ignore[arg-type]
    return read(options, RecommendOptions(**given), over_servers=True)


def test_a_model_larger_than_a_server_is_planned_over_several(tmp_path: Path) -> None:
    answer = solve(large_case({"nodes": "2"}))
    winner, plan, cluster = answer.found.winner, answer.plan, answer.cluster
    assert winner is not None and plan is not None and cluster is not None
    assert (winner.candidate.world, winner.candidate.hosts) == (16, 2)
    sizes = (cluster.layout.tensor, cluster.layout.pipeline, cluster.layout.hosts)
    assert sizes == (winner.candidate.cards, winner.candidate.pipeline, 2)
    assert winner.setup is not None and plan.num_blocks is not None
    assert winner.setup.limits.num_blocks == plan.num_blocks // winner.candidate.pipeline
    assert answer.command[:6] == (
        *("gaudi-launch", "cluster", "up", LARGE["model"]),
        *("--hosts", "HOST1,HOST2"),
    )
    # --plan is for one server
    assert not save(answer, RecommendOptions(), tmp_path / "plan.yaml")
    assert not list(tmp_path.iterdir())
    assert "recommend.spread_assumed" in {note.id for note in compared(answer.found.case).notes}


def test_the_printed_cluster_command_is_the_plan() -> None:
    answer = solve(large_case({"nodes": "2"}, engine="vllm-fork@1.22"))
    words = list(answer.command[1:])
    words[1] = "plan"
    words[4] = "HOST1=simulated:hls2,HOST2=simulated:hls2"
    found = CliRunner().invoke(app, [*words, "--json"])
    assert found.exit_code == 0, found.stdout
    page = json.loads(found.stdout)
    assert answer.plan is not None and answer.cluster is not None
    assert page["engine"] == "vllm-fork@1.22"
    assert page["memory"] == dict(answer.plan.memory)
    assert page["layout"]["tensor"] == answer.cluster.layout.tensor
    settings = {each["name"]: each["value"] for each in page["settings"]}
    assert settings["--max-num-seqs"] == "8"


def test_given_cards_over_servers_are_binding() -> None:
    case = large_case({"nodes": "4"}, cards="24")
    assert {each.world for each in samples(case.search)} == {24}
    assert case.options.cards is None


def test_one_server_stays_the_answer_where_the_model_fits_it() -> None:
    case = large_case({"nodes": "2"}, dtype="fp8")
    assert {each.hosts for each in samples(case.search)} == {1}
    plain = replace(case.options, dtype="bf16")
    alone = read(plain, RecommendOptions(nodes="2"))
    assert {each.hosts for each in samples(alone.search)} == {1}


@pytest.mark.parametrize(
    ("nodes", "launch", "id", "code"),
    [
        ("2", {"cards": "24"}, "recommend.few_cards", ExitCode.MACHINE),
        ("2", {"cards": "12"}, "recommend.few_cards", ExitCode.MACHINE),
        ("2", {"engine": "vllm-gaudi"}, "recommend.one_server_engine", ExitCode.USAGE),
    ],
)
def test_what_no_servers_can_run_is_refused(
    nodes: str, launch: dict[str, str], id: str, code: ExitCode
) -> None:
    with failing(id, code):
        large_case({"nodes": nodes}, **launch)


def _trace_of(folder: Path, inputs: list[int]) -> str:
    file = folder / "lengths.csv"
    rows = [f"{at},{tokens},50" for at, tokens in enumerate(inputs)]
    file.write_text("\n".join(["t_seconds,input_tokens,output_tokens", *rows]), encoding="utf-8")
    return str(file)


def test_prompts_longer_than_the_model_are_counted(tmp_path: Path) -> None:
    case = case_of(None, trace=_trace_of(tmp_path, [500] * 9 + [300_000]))
    (refused,) = [note for note in case.search.notes if note.id == "capacity.refused"]
    assert dict(refused.values) == {"percent": "10.0", "length": 131072}


@pytest.mark.parametrize("launch", [{}, {"max_model_len": "400"}])
def test_a_trace_without_a_prompt_that_fits_is_refused(
    launch: dict[str, str], tmp_path: Path
) -> None:
    shortest = 500 if launch else 200_000
    with failing("recommend.all_too_long", ExitCode.MODEL):
        case_of(launch, trace=_trace_of(tmp_path, [shortest, 300_000]))


def test_cards_and_modules_that_differ_are_refused() -> None:
    options = {"machine": "simulated:hls2", "modules": "0,1", "cards": "4"}
    with failing("placement.count_differs", ExitCode.USAGE):
        case_of(options)


def test_given_options_that_contradict_are_an_error() -> None:
    options = {"max_num_seqs": "512", "max_num_batched_tokens": "256", "cards": "1"}
    with pytest.raises(LaunchError) as error:
        solve(case_of({**options, "dtype": "bf16"}))
    assert error.value.exit_code == ExitCode.USAGE
