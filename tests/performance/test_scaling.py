"""Step times of models on cards as the bucket planner and the simulator take them."""

from __future__ import annotations

import pytest

from gaudi_launch.host.accelerators import accelerators
from gaudi_launch.models.model import Model
from gaudi_launch.performance.constants import values
from gaudi_launch.performance.prediction import steps
from gaudi_launch.performance.scaling import known_shape, step_time
from gaudi_launch.performance.step_model import Setup
from gaudi_launch.profiles import known_model

GAUDI2, GAUDI3 = accelerators()["gaudi2"], accelerators()["gaudi3"]
LLAMA = known_model("meta-llama/Llama-3.1-8B-Instruct", False)


def test_the_lines_are_near_the_model_where_engines_work() -> None:
    model = steps(Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v0"), known_shape(LLAMA)[0], values())
    cost = step_time(LLAMA, 1, "bfloat16", GAUDI2).cost
    for tokens in (128, 512, 2048, 8192):
        assert cost.prefill(1, tokens) == pytest.approx(
            1000 * model.prefill(1, tokens).total, rel=0.12
        )
    for batch in (1, 16, 256):
        expected = 1000 * model.decode(batch, 1024).total
        assert cost.decode(batch, batch * 8) == pytest.approx(expected, rel=1e-6)


def test_fp8_halves_weights_and_cache() -> None:
    base = step_time(LLAMA, 1, "bfloat16", GAUDI2).cost
    fp8 = step_time(LLAMA, 1, "fp8", GAUDI2, "fp8_inc").cost
    assert fp8.decode_block == pytest.approx(base.decode_block / 2)
    read = (8.03e9 - 128256 * 4096) / (2450e9 * values()["read.gaudi2"]) * 1000
    assert base.decode_fixed - fp8.decode_fixed == pytest.approx(read, rel=0.01)


def test_gaudi3_reads_faster() -> None:
    base = step_time(LLAMA, 1, "bfloat16", GAUDI2).cost
    other = step_time(LLAMA, 1, "bfloat16", GAUDI3).cost
    reads = 3670 * values()["read.gaudi3"] / (2450 * values()["read.gaudi2"])
    assert other.decode_block == pytest.approx(base.decode_block / reads)


@pytest.mark.parametrize("name", ["deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-235B-A22B"])
def test_large_mixtures_are_not_an_8b(name: str) -> None:
    large = step_time(known_model(name, False), 8, "fp8", GAUDI2, "fp8_inc").cost
    small = step_time(LLAMA, 1, "bfloat16", GAUDI2).cost
    assert large.decode_fixed > 1.3 * small.decode_fixed
    assert large.decode_sequence > 1.3 * small.decode_sequence


def test_405b_on_eight_cards_is_not_an_8b() -> None:
    config = Model(
        "m", "m", parameters=405_853_388_800, layers=126, hidden_size=16384,
        intermediate_size=53248, heads=128, kv_heads=8, head_dim=128, vocab_size=128256, moe=False,
    )  # fmt: skip
    large = step_time(config, 8, "fp8", GAUDI2, "fp8_inc").cost
    small = step_time(LLAMA, 1, "bfloat16", GAUDI2).cost
    assert large.decode_fixed > 3 * small.decode_fixed
    assert large.prefill_token > 2 * small.prefill_token


def test_a_card_without_figures_says_whose_it_takes() -> None:
    found = step_time(LLAMA, 1, "bfloat16", accelerators()["gaudi2e"])
    assert [(note.id, note.values["other"]) for note in found.notes] == [
        ("capacity.assume_card", "gaudi2")
    ]
    assert step_time(LLAMA, 1, "bfloat16", GAUDI2).notes == ()


def test_active_parameters_of_mixtures_are_those_of_their_names() -> None:
    # published: 3.3 B of 30.5 B, 22 B of 235 B
    small = known_shape(known_model("Qwen/Qwen3-30B-A3B", False))[0]
    large = known_shape(known_model("Qwen/Qwen3-235B-A22B", False))[0]
    assert small.active == pytest.approx(3.3e9, rel=0.15)
    assert large.active == pytest.approx(22e9, rel=0.15)


def test_a_model_that_only_its_name_describes_takes_its_size_from_it() -> None:
    found, title = known_shape(Model("m", "Some-13B-Chat"))
    assert (round(found.parameters / 1e9), title) == (13, "Llama-3.1-8B x 1.7")
    assert known_shape(Model("m", "some-chat"))[1] == "Llama-3.1-8B"
