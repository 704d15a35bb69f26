"""`inspect`, `estimate`, `plan` and `recommend` answer alike: memory, cards, speed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gaudi_launch.commands import estimate
from gaudi_launch.commands.inspect import fit
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.launch import prediction, route
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.parse import if_given
from gaudi_launch.core.planning.parse_ranges import pair
from gaudi_launch.extensions.recommend import case as recommend

CLIENTS, INPUT, OUTPUT, LENGTH = "32", "1024", "256", "1280"
MACHINES = {"gaudi2": "simulated:hls2", "gaudi3": "simulated:gaudi3-oam"}
LLAMA_8B, LLAMA_70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"
LLAMA_405B, QWEN_32B = "meta-llama/Llama-3.1-405B-Instruct", "Qwen/Qwen3-32B"
MIXTRAL, QWEN_MOE = "mistralai/Mixtral-8x7B-Instruct-v0.1", "Qwen/Qwen3-30B-A3B"
DEEPSEEK, GPT_OSS = "deepseek-ai/DeepSeek-R1", "openai/gpt-oss-120b"


@dataclass(frozen=True)
class Case:
    model: str
    cards: int
    accelerator: str = "gaudi2"
    dtype: str = ""
    engine: str = ""
    # deepseek_r1 takes no -i and -o in a plan
    ranges: bool = True

    def __str__(self) -> str:
        words = (
            self.model.split("/")[1],
            str(self.cards),
            self.accelerator,
            self.dtype,
            self.engine,
        )
        return " ".join(word for word in words if word)


CASES = [
    Case(LLAMA_8B, 1),
    Case(LLAMA_8B, 1, dtype="bf16"),
    Case(LLAMA_8B, 1, dtype="fp8"),
    Case(LLAMA_8B, 2, engine="vllm-fork@1.22"),
    Case(LLAMA_8B, 1, "gaudi3"),
    Case(LLAMA_70B, 1),
    Case(LLAMA_70B, 2),
    Case(LLAMA_70B, 4),
    Case(LLAMA_70B, 1, dtype="fp8"),
    Case(LLAMA_70B, 2, dtype="fp8", engine="vllm-fork@1.21"),
    Case(LLAMA_405B, 8),
    Case(LLAMA_405B, 8, "gaudi3"),
    Case(MIXTRAL, 1),
    Case(MIXTRAL, 2),
    Case(QWEN_MOE, 1),
    Case(QWEN_MOE, 1, "gaudi3", dtype="fp8"),
    Case(DEEPSEEK, 4, ranges=False),
    Case(DEEPSEEK, 8, ranges=False),
    Case(DEEPSEEK, 8, "gaudi3"),
    Case(GPT_OSS, 1),
    Case(GPT_OSS, 4),
    Case(QWEN_32B, 3),
    Case(QWEN_32B, 8),
]


def of_fit(case: Case, length: str = LENGTH) -> fit.FitResult:
    lengths = fit.ServedLengths(length, CLIENTS, INPUT, OUTPUT)
    options = fit.InspectOptions(
        case.model, str(case.cards), case.accelerator, case.dtype, case.engine, lengths
    )
    return fit.fit(known_model(case.model, must_exist=False), options)


def launch(case: Case) -> LaunchOptions:
    return LaunchOptions(
        model=case.model,
        cards=case.cards,
        machine=MACHINES[case.accelerator],
        dtype=case.dtype or None,
        engine=case.engine or None,
        input_range=pair("-i", INPUT) if case.ranges else None,
        output_range=pair("-o", OUTPUT) if case.ranges else None,
        max_num_seqs=int(CLIENTS),
        max_model_len=int(LENGTH),
        trust_remote_code=True,
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_memory_and_speed_are_the_same_for_every_command(case: Case) -> None:
    row = of_fit(case).table.rows[0]
    given = estimate.EstimateOptions(concurrency=int(CLIENTS))
    if not row.fits and row.reason.id != "fit.tight":
        with pytest.raises(LaunchError) as planned:
            route.plan(launch(case))
        with pytest.raises(LaunchError) as estimated:
            estimate.predicted(launch(case), given)
        assert planned.value.text == estimated.value.text
        return
    made, prepared = route.plan(launch(case))
    if not row.fits:
        # the engine starts, so that a number that the user gives stays, with the warning
        assert row.reason in made.warnings
        return
    assert made.num_blocks == row.kv_blocks
    found, line = estimate.predicted(launch(case), given), prediction.of_plan(prepared, made)
    assert line is not None and found.plan is not None
    assert (found.plan.num_blocks, found.plan.buckets) == (made.num_blocks, made.buckets)
    for each in (found.outcome, line):
        assert each.setup.limits.physical_blocks == row.kv_blocks
    assert found.outcome.setup == line.setup
    assert (found.outcome.ttft.mean, found.outcome.tokens) == (line.ttft.mean, line.tokens)


@pytest.mark.parametrize(
    "case",
    [CASES[1], Case(LLAMA_8B, 2, engine="vllm-fork@1.22"), Case(QWEN_32B, 4, "gaudi3")],
    ids=str,
)
def test_a_configuration_that_is_given_is_recommended_with_the_figures_of_estimate(
    case: Case,
) -> None:
    options = launch(case)
    searched = recommend.RecommendOptions(concurrency=int(CLIENTS), nodes="1", goal="cost")
    answer = recommend.solve(recommend.read(options, searched))
    winner = answer.found.winner
    assert winner is not None and winner.served is not None and answer.launch is not None
    assert winner.served.replicas == 1
    found = estimate.predicted(answer.launch, estimate.EstimateOptions(concurrency=int(CLIENTS)))
    served = winner.served
    assert found.plan == answer.plan
    assert (served.ttft, served.tpot, served.e2e) == tuple(
        each.at(95) for each in (found.outcome.ttft, found.outcome.tpot, found.outcome.e2e)
    )


@pytest.mark.parametrize(
    ("inputs", "outputs", "engine", "length"),
    [
        ("1024", "256", "", 16384),
        ("1024", "256", "vllm-fork@1.22", 16384),
        ("100,30000", "600", "", 30720),
        ("100,30000", "600", "vllm-fork@1.22", 30720),
    ],
)
def test_the_length_without_an_option_is_the_same(
    inputs: str, outputs: str, engine: str, length: int
) -> None:
    lengths = fit.ServedLengths(requests=CLIENTS, inputs=inputs, outputs=outputs)
    typed = fit.InspectOptions(LLAMA_70B, "8", "gaudi2", "bf16", engine, lengths)
    row = fit.fit(known_model(LLAMA_70B, must_exist=False), typed).table.rows[0]
    options = LaunchOptions(
        model=LLAMA_70B,
        cards=8,
        machine=MACHINES["gaudi2"],
        dtype="bf16",
        engine=engine or None,
        input_range=if_given(pair, "-i", inputs),
        output_range=if_given(pair, "-o", outputs),
        max_num_seqs=int(CLIENTS),
    )
    made = route.plan(options)[0]
    assert made.args.last("--max-model-len") == str(length)
    assert made.num_blocks is not None
    assert row.kv_blocks == made.num_blocks
    assert row.concurrency == pytest.approx(made.num_blocks * 128 / length, rel=1e-3)
