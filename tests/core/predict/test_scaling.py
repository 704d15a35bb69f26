"""Step times of models on cards as the bucket planner and the simulator take them."""

from __future__ import annotations

from pathlib import Path

from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.predict.learned import LearnedConstants, write_learned
from gaudi_launch.core.predict.published import Figure
from gaudi_launch.core.predict.scaling import known_shape, step_time
from gaudi_launch.core.predict.step_model import Setup

GAUDI2, GAUDI3 = accelerators()["gaudi2"], accelerators()["gaudi3"]
LLAMA = known_model("meta-llama/Llama-3.1-8B-Instruct", False)


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
