"""Step times of models on cards as the bucket planner and the simulator take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.predict.learned import (
    LearnedConstants,
    SpeedMeasurement,
    values,
    write_learned,
)
from gaudi_launch.core.predict.loads import steps
from gaudi_launch.core.predict.scaling import known_shape, step_time
from gaudi_launch.core.predict.step_model import Engine, Setup

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


@pytest.mark.parametrize(
    ("dtype", "kv_dtype", "setup", "basis"),
    [
        ("bfloat16", "auto", Setup("gaudi2", 2, "bf16", 2.0, 2.0, "v1"), "bf16, 2 x gaudi2"),
        ("float16", "fp8_inc", Setup("gaudi2", 2, "bf16", 2.0, 1.0, "v1"), "bf16, 2 x gaudi2"),
        ("fp8", "fp8_inc", Setup("gaudi2", 2, "fp8", 1.0, 1.0, "v1"), "fp8, 2 x gaudi2"),
        ("awq", "auto", Setup("gaudi2", 2, "bf16", 0.525, 2.0, "v1"), "awq, 2 x gaudi2"),
        ("odd", "odd", Setup("gaudi2", 2, "bf16", 2.0, 2.0, "v1"), "odd, 2 x gaudi2"),
    ],
)
def test_the_setup_of_a_precision(dtype: str, kv_dtype: str, setup: Setup, basis: str) -> None:
    found = step_time(LLAMA, 2, dtype, GAUDI2, kv_dtype, "v1")
    assert (found.setup, found.cost.basis) == (setup, f"{LLAMA.name} {basis}")
    assert found.measured


def test_no_card_counts_as_one_and_more_than_a_server_has_as_two_servers() -> None:
    none = step_time(LLAMA, 0, "bfloat16", GAUDI3).setup
    assert none == Setup("gaudi3", 1, "bf16", 2.0, 2.0, "v0")
    many = step_time(LLAMA, 16, "bfloat16", GAUDI3).setup
    assert many == Setup("gaudi3", 16, "bf16", 2.0, 2.0, "v0", hosts=2)
    mixture = replace(LLAMA, model_type="gpt_oss")
    assert step_time(mixture, 1, "bfloat16", GAUDI2).setup.fused is False


def test_the_decode_steps_of_a_mixture_bend_and_those_of_others_do_not() -> None:
    mixture = known_model("Qwen/Qwen3-30B-A3B", False)
    cost = step_time(mixture, 1, "bfloat16", GAUDI2).cost
    setup = Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v0")
    model = steps(setup, known_shape(mixture)[0], values())
    assert len(cost.bend) == 513
    for batch in (1, 8, 40, 512):
        expected = 1000 * model.decode(batch, 0).total
        assert cost.decode(batch, 0) == pytest.approx(expected)
    assert step_time(LLAMA, 1, "bfloat16", GAUDI2).cost.bend == ()


def test_what_this_host_learned_is_noted_for_its_own_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shape, setup = known_shape(LLAMA)[0], Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v0")
    one = SpeedMeasurement("s", "tpot", "mean", "e", "m", setup, shape, 1, 2, 1, 0.1)
    write_learned(LearnedConstants(3, 0.0, {}, 1.1, 1.2, 0, (one, one)))
    notes = step_time(LLAMA, 1, "bfloat16", GAUDI2).notes
    assert [(note.id, note.values) for note in notes] == [
        ("learn.used", {"version": 3, "count": 2})
    ]
    assert step_time(LLAMA, 1, "bfloat16", GAUDI2).measured
    assert step_time(LLAMA, 1, "bfloat16", GAUDI3).notes == ()


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("a-90b-chat", "Llama-3.1-70B x 1.3"),
        ("a_3.8B", "Llama-3.1-8B x 0.51"),
        ("a-300B", "Llama-3.1-405B x 0.74"),
        ("v1.7b-13bit", "Llama-3.1-8B"),
        ("7billion", "Llama-3.1-8B"),
        ("x70b", "Llama-3.1-8B"),
    ],
)
def test_the_size_of_a_name_chooses_the_nearest_llama(name: str, title: str) -> None:
    assert known_shape(Model("m", name))[1] == title
    given = Model("m", name, parameters=8_030_261_248)
    assert known_shape(given)[1] == "Llama-3.1-8B x 1.1"


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


@pytest.mark.parametrize("engine", ["v0", "v1"])
@pytest.mark.parametrize("product", ["gaudi2", "gaudi3"])
def test_a_prompt_in_chunks_costs_what_the_step_model_says(engine: Engine, product: str) -> None:
    made = step_time(LLAMA, 1, "bfloat16", accelerators()[product], engine=engine)
    many, chunk = 16, 8192
    budget = chunk if engine == "v1" else 0
    step = steps(replace(made.setup, step_tokens=budget), made.shape, values())
    lines = sum(made.cost.chunk(1, chunk, number * chunk) for number in range(many))
    complete = 1000 * float(step.prefill(1, many * chunk).total)
    assert lines == pytest.approx(complete, rel=0.1)
