"""Copies, stages and experts over the cards: planned, or refused alike for every spelling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines.known_versions import releases
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.engines.version_facts import names_of
from gaudi_launch.core.host import simulated
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.option_table import option_table
from gaudi_launch.core.planning.passthrough import with_options
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request

DENSE = known_model("meta-llama/Llama-3.1-8B-Instruct", False)
MOE = known_model("Qwen/Qwen3-30B-A3B", False)
HOST = simulated.make("hls2")
OFFERED = [each.label for each in releases("vllm-gaudi") if each.executed]
FORKS = ["vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1"]
ENGINES = [*OFFERED, "simulated", *FORKS, "ray-serve:vllm-gaudi"]
SIZES = {"copies": ("--data-parallel-size", "-dp"), "stages": ("--pipeline-parallel-size", "-pp")}
APART = (
    "--data-parallel-address 10.0.0.1", "--data-parallel-backend ray",
    "--data-parallel-external-lb", "--data-parallel-hybrid-lb",
    "--data-parallel-multi-port-external-lb", "--data-parallel-rank 0", "--data-parallel-rank 1",
    "--data-parallel-rpc-port 29550", "--data-parallel-size-local 3",
    "--data-parallel-start-rank 1", "--data-parallel-supervisor-port 1", "--headless", "--nnodes 2",
    "--node-rank 1", "--master-addr a", "--master-port 1", "-dpr 1", "-dpl 2", "-dpe", "-dpn 1",
)  # fmt: skip


def plan(engine: str, model: Model, *extra: str, **given: object) -> Plan:
    given = {"cards": 8 if engine == "deepseek_r1" else 2, "trust_remote_code": True, **given}
    request = Request(model.path, extra=extra, engine=engine, **given)  # type: ignore[arg-type]
    return make_plan(request, HOST, model, find(engine).suited(model))


def answer(engine: str, model: Model, *extra: str, **given: object) -> tuple[object, ...]:
    """Return the numbers of a plan, or its refusal."""
    try:
        made = plan(engine, model, *extra, **given)
    except LaunchError as error:
        return error.exit_code, error.text.render()
    graphs = made.buckets.graphs if made.buckets is not None else None
    return made.placement.modules, dict(made.memory), made.num_blocks, graphs


def spellings(long: str, short: str) -> list[tuple[Sequence[str], Sequence[str]]]:
    """Return the ways to write an option: the user's arguments and those of the user's file."""
    under = long[:2] + long[2:].replace("-", "_")
    words = [[name, "2"] for name in (long, under, short)]
    words += [[f"{name}=2"] for name in (long, under, short)]
    return [*((each, ()) for each in words), (("--config", "c.yaml"), (long, "2"))]


@pytest.mark.parametrize("feature", SIZES)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_spelling_of_a_size_has_one_answer(engine: str, feature: str) -> None:
    known = option_table(find(engine).innermost.identity.options).spellings
    if SIZES[feature][0] not in known:
        assert answer(engine, DENSE, SIZES[feature][0], "2")[0] == ExitCode.USAGE
        return
    answers = [
        answer(engine, DENSE, *words, file_words=tuple(file))
        for words, file in spellings(*SIZES[feature])
        if not file or find(engine).config_file == "read"
    ]
    assert answers == [answers[0]] * len(answers)
    runs = {
        "copies": engine == "simulated" or engine in OFFERED,
        "stages": engine.startswith("vllm-fork"),
    }
    assert (answers[0][0] == (0, 1, 2, 3)) == runs[feature], answers[0]
    if not runs[feature]:
        assert answers[0][0] == ExitCode.USAGE
    # one part is no part: as without the option
    assert answer(engine, DENSE, SIZES[feature][0], "1") == answer(engine, DENSE)


@pytest.mark.parametrize("engine", [*OFFERED, "simulated"])
def test_every_option_of_a_part_has_one_refusal(engine: str) -> None:
    identity = find(engine).identity
    own = names_of(releases("vllm-gaudi")[-1]).options
    sentences = set()
    for option in APART:
        words = tuple(option.split())
        code, sentence = answer(engine, DENSE, *words)
        assert code == ExitCode.USAGE, (engine, option)
        name = with_options(Request("m", extra=words), identity).args.user[0].name
        if name in own and "is not an option of" not in str(sentence):
            sentences.add(str(sentence).replace(" ".join([name, *words[1:]]), "OPTION"))
    assert len(sentences) == 1, sentences
    for name in ("VLLM_DP_SIZE", "VLLM_DP_RANK", "VLLM_DP_RANK_LOCAL"):
        code, sentence = answer(engine, DENSE, environment={name: "3"})
        assert (code, str(sentence).replace(f"{name}=3", "OPTION")) == (ExitCode.USAGE, *sentences)


@pytest.mark.parametrize("engine", [*OFFERED, "simulated", "vllm-fork@1.22"])
def test_experts_are_divided_where_there_are_some(engine: str) -> None:
    for spelled in ("--enable-expert-parallel", "--enable_expert_parallel"):
        code, sentence = answer(engine, DENSE, spelled)
        assert (code, "has no experts" in str(sentence)) == (ExitCode.USAGE, True)
        assert answer(engine, MOE, spelled) == answer(engine, MOE)
    balanced = answer(engine, MOE, "--enable-eplb")
    assert balanced[0] == ExitCode.USAGE, balanced
    off = plan(engine, MOE, "--no-enable-expert-parallel").command.argv
    assert "--enable-expert-parallel" not in off
    assert answer(engine, DENSE, "--no-enable-expert-parallel") == answer(engine, DENSE)


@pytest.mark.parametrize("engine", [*OFFERED, "simulated"])
def test_a_copy_is_planned_as_one_engine_on_its_cards(engine: str) -> None:
    one, both = plan(engine, DENSE), plan(engine, DENSE, "-dp", "2")
    assert both.placement.modules == (0, 1, 2, 3)
    assert (both.memory, both.num_blocks, both.buckets) == (one.memory, one.num_blocks, one.buckets)
    if engine != "simulated":
        assert both.command.env["HABANA_VISIBLE_MODULES"] == "0,1,2,3"
    sizes = {s.name: s.value for s in both.settings if s.kind == "option"}
    assert (sizes["--tensor-parallel-size"], sizes["--data-parallel-size"]) == ("2", "2")
    assert [each.id for each in both.placement.reasons].count("placement.parts") == 1


def test_copies_of_a_mixture_share_its_experts() -> None:
    engine = OFFERED[-1]
    one, two, four = (plan(engine, MOE, "-dp", str(copies)) for copies in (1, 2, 4))
    all_tensor = plan(engine, MOE, cards=8)
    for made in (two, four):
        assert made.memory["weights"] < one.memory["weights"]
    # what is not experts stays complete on the cards of each copy
    assert all_tensor.memory["weights"] < four.memory["weights"] < two.memory["weights"]


def test_stages_divide_layers_and_the_cache_of_each_engine() -> None:
    one, two = plan("vllm-fork@1.22", DENSE), plan("vllm-fork@1.22", DENSE, "-pp", "2")
    assert 0.4 < two.memory["weights"] / one.memory["weights"] < 0.7
    assert two.command.env["PT_HPUGRAPH_DISABLE_TENSOR_CACHE"] == "0"
    assert two.model["layers"] == one.model["layers"] == DENSE.layers
    code, sentence = answer(
        "vllm-fork@1.22", replace(DENSE, architecture="GPT2LMHeadModel2"), "-pp", "2"
    )
    assert (code, "pipeline stages" in str(sentence)) == (ExitCode.MODEL, True)


@pytest.mark.parametrize(
    ("given", "words", "expected"),
    [
        ({"cards": 4}, "-dp 2", (0, 1, 2, 3, 4, 5, 6, 7)),
        ({"cards": None, "modules": (4, 5, 6, 7)}, "-dp 2", (4, 5, 6, 7)),
        ({"cards": None}, "-dp 2", (0, 1)),
        ({"cards": 8}, "-dp 2", ExitCode.MACHINE),
        ({"cards": None, "modules": (0, 1, 2)}, "-dp 2", ExitCode.USAGE),
        ({"cards": 4, "modules": (0, 1, 2, 3)}, "-dp 2", ExitCode.USAGE),
        ({}, "-dp 0", ExitCode.USAGE),
        ({}, "-dp two", ExitCode.USAGE),
    ],
)
def test_cards_are_tensors_times_copies(
    given: dict[str, object], words: str, expected: object
) -> None:
    assert answer(OFFERED[-1], DENSE, *words.split(), **given)[0] == expected
