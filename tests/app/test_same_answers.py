"""`fit`, `capacity`, `estimate` and `plan` answer alike: memory, cards, speed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gaudi_launch.app import capacity, estimate, fit, prepare
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.capacity.cards import CardsChoice, solve
from gaudi_launch.capacity.replica import Replica
from gaudi_launch.errors import LaunchError
from gaudi_launch.planning.plan import Plan
from tests.support.capacity import few_requests

__all__ = ["few_requests"]

CLIENTS, INPUT, OUTPUT, LENGTH = "32", "1024", "256", "1280"
MACHINES = {"gaudi2": "simulated:hls2", "gaudi3": "simulated:gaudi3-oam"}
LLAMA_8B, LLAMA_70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"
LLAMA_405B, QWEN_32B = "meta-llama/Llama-3.1-405B-Instruct", "Qwen/Qwen3-32B"
MIXTRAL, QWEN_MOE = "mistralai/Mixtral-8x7B-Instruct-v0.1", "Qwen/Qwen3-30B-A3B"
DEEPSEEK, GPT_OSS = "deepseek-ai/DeepSeek-R1", "openai/gpt-oss-120b"
# padding of buckets and the API server, which `estimate` leaves out
SPEED_APART, TTFT_APART = 0.08, 0.15


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
    options = fit.FitOptions(
        case.model, str(case.cards), case.accelerator, case.dtype, case.engine, lengths
    )
    return fit.fit(options)


def of_capacity(case: Case) -> CardsChoice:
    words = capacity.CapacityOptions(
        concurrency=CLIENTS,
        inputs=INPUT,
        outputs=OUTPUT,
        length=LENGTH,
        cards=str(case.cards),
        accelerator=case.accelerator,
        engine=case.engine,
        dtype=case.dtype,
        requests=CLIENTS,
        percentile="50",
    )
    return solve(capacity.read(case.model, words)).choices[0]


def of_estimate(case: Case) -> estimate.SpeedEstimate:
    options = estimate.EstimateOptions(
        cards=str(case.cards),
        accelerator=case.accelerator,
        engine=case.engine,
        dtype=case.dtype,
        inputs=INPUT,
        outputs=OUTPUT,
        concurrency=CLIENTS,
    )
    return estimate.solve(estimate.read(case.model, options))


def of_plan(case: Case) -> tuple[Plan, estimate.SpeedEstimate | None]:
    options = LaunchOptions(
        model=case.model,
        cards=str(case.cards),
        machine=MACHINES[case.accelerator],
        dtype=case.dtype or None,
        engine=case.engine or None,
        input_range=INPUT if case.ranges else None,
        output_range=OUTPUT if case.ranges else None,
        max_num_seqs=CLIENTS,
        max_model_len=LENGTH,
        trust_remote_code=True,
    )
    made, prepared = prepare.plan(options)
    return made, estimate.of_plan(prepared, made)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_memory_and_speed_are_the_same_for_every_command(case: Case) -> None:
    row, choice = of_fit(case).table.rows[0], of_capacity(case)
    if not row.fits:
        assert choice.curve is None
        if row.reason.id == "fit.tight":
            # the engine starts, so that a number that the user gives stays, with the warning
            assert row.reason in of_plan(case)[0].warnings
        else:
            with pytest.raises(LaunchError):
                of_plan(case)
        try:
            notes = of_estimate(case).case.notes
        except LaunchError as error:
            assert (error.id, row.reason.id) == ("estimate.uneven", "fit.heads")
        else:
            # estimate has no -l
            assert of_fit(case, length="").table.rows[0].reason in notes
        return
    assert isinstance(choice.replica, Replica) and choice.curve is not None
    predicted = of_estimate(case)
    made, planned = of_plan(case)
    assert (choice.replica.limits.num_blocks, made.num_blocks) == (row.kv_blocks, row.kv_blocks)
    assert planned is not None
    setup = choice.replica.speed.setup
    for each in (predicted.case.setup, planned.case.setup):
        assert (each.math, each.weight_bytes, each.kv_bytes, each.engine, each.fused) == (
            setup.math,
            setup.weight_bytes,
            setup.kv_bytes,
            setup.engine,
            setup.fused,
        )
    expected = predicted.prediction
    if case.ranges:
        assert planned.prediction.throughput == expected.throughput
        assert (planned.prediction.ttft, planned.prediction.tpot) == (expected.ttft, expected.tpot)
    simulated = choice.curve.loads[-1]
    assert simulated.tokens == pytest.approx(expected.throughput.expected, rel=SPEED_APART)
    assert simulated.tpot == pytest.approx(expected.tpot.expected, rel=SPEED_APART)
    assert simulated.ttft == pytest.approx(expected.ttft.expected, rel=TTFT_APART, abs=0.03)


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
    row = fit.fit(fit.FitOptions(LLAMA_70B, "8", "gaudi2", "bf16", engine, lengths)).table.rows[0]
    words = capacity.CapacityOptions(
        concurrency=CLIENTS,
        inputs=inputs,
        outputs=outputs,
        cards="8",
        accelerator="gaudi2",
        engine=engine,
        dtype="bf16",
        requests=CLIENTS,
    )
    case = capacity.read(LLAMA_70B, words)
    launch = LaunchOptions(
        model=LLAMA_70B,
        cards="8",
        machine=MACHINES["gaudi2"],
        dtype="bf16",
        engine=engine or None,
        input_range=inputs,
        output_range=outputs,
        max_num_seqs=CLIENTS,
    )
    made = prepare.plan(launch)[0]
    assert made.args.last("--max-model-len") == str(length)
    assert case.limits.max_model_len == length
    assert made.num_blocks is not None
    assert row.kv_blocks == made.num_blocks
    assert row.concurrency == pytest.approx(made.num_blocks * 128 / length, rel=1e-3)


@pytest.mark.usefixtures("few_requests")
@pytest.mark.parametrize("model", [LLAMA_8B, LLAMA_70B, LLAMA_405B, MIXTRAL, QWEN_MOE, GPT_OSS])
def test_the_fewest_cards_are_the_same(model: str) -> None:
    lengths = fit.ServedLengths(LENGTH, CLIENTS, INPUT, OUTPUT)
    found = fit.fit(fit.FitOptions(model, "", "gaudi2", lengths=lengths)).table.smallest_n
    words = capacity.CapacityOptions(
        concurrency="1",
        inputs=INPUT,
        outputs=OUTPUT,
        length=LENGTH,
        accelerator="gaudi2",
        requests=CLIENTS,
    )
    chosen = solve(capacity.read(model, words)).chosen
    assert (chosen.cards if chosen is not None else None) == found
