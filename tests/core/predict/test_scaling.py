"""Step times of models on cards as the bucket planner and the simulator take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.predict.learned import LearnedConstants, write_learned
from gaudi_launch.core.predict.published import Figure
from gaudi_launch.core.predict.scaling import known_shape, step_time
from gaudi_launch.core.predict.step_model import Setup

GAUDI2, GAUDI3 = accelerators()["gaudi2"], accelerators()["gaudi3"]
LLAMA = known_model("meta-llama/Llama-3.1-8B-Instruct", False)


@pytest.mark.parametrize("name", ["deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-235B-A22B"])
def test_large_mixtures_are_not_an_8b(name: str) -> None:
    large = step_time(known_model(name, False), 8, "fp8", GAUDI2, "fp8_inc").cost
    small = step_time(LLAMA, 1, "bfloat16", GAUDI2).cost
    assert large.decode_fixed > 1.3 * small.decode_fixed
    assert large.decode_sequence > 1.3 * small.decode_sequence


def test_what_this_host_learned_is_noted_for_its_own_cards(own_folders: Path) -> None:
    shape, setup = known_shape(LLAMA)[0], Setup("gaudi2", 1, "bf16", 2.0, 2.0, "v0")
    one = Figure("s", "tpot", "mean", "e", "", "m", setup, shape, 1, 2, 1, 0.1)
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
