"""This host's own constants: learned from measurements, near the shipped ones, and used by
predictions."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from gaudi_launch.core.predict import constants as store
from gaudi_launch.core.predict.fitting import points_of, predicted
from gaudi_launch.core.predict.learned import (
    LearnedConstants,
    learned_for,
    read_learned,
    state_file,
    values,
    write_learned,
)
from gaudi_launch.core.predict.learning import learn
from gaudi_launch.core.predict.published import Figure, shapes
from gaudi_launch.core.predict.step_model import Generation, Setup

pytestmark = pytest.mark.usefixtures("own_folders")

NOW = 1_790_000_000.0
LOADS = ((128, 64, 1), (512, 128, 8), (256, 256, 32))
OTHERS = ((1024, 64, 4), (64, 200, 16), (300, 100, 24))


def setup(generation: Generation = "gaudi2") -> Setup:
    return Setup(generation, 1, "bf16", 2.0, 2.0, "v1")


def blank(load: tuple[int, int, int], measure: str, generation: Generation = "gaudi2") -> Figure:
    prompt, output, batch = load
    return Figure(
        source="run.json",
        measure=measure,
        statistic="mean",
        harness="toy",
        software="",
        model="Llama-3.1-8B",
        setup=setup(generation),
        shape=shapes()["Llama-3.1-8B"],
        input=prompt,
        output=output,
        batch=batch,
        value=1.0,
    )


def on_a_host(
    loads: tuple[tuple[int, int, int], ...],
    changes: dict[str, float],
    generation: Generation = "gaudi2",
) -> list[Figure]:
    """Return what a host measures whose constants are the shipped ones times ``changes``."""
    shipped = store.constants()
    values = [one.scaled * changes.get(name, 1.0) for name, one in shipped.items()]
    asked = [
        blank(load, measure, generation) for load in loads for measure in ("tpot", "throughput")
    ]
    found = predicted(points_of(asked, tuple(shipped)), np.array(values))
    return [replace(each, value=float(value)) for each, value in zip(asked, found, strict=True)]


def off(learned: LearnedConstants, measured: list[Figure]) -> list[float]:
    write_learned(learned)
    found = values()
    numbers = np.array([found[name] for name in store.constants()])
    points = points_of(measured, tuple(store.constants()))
    return [abs(float(value)) for value in predicted(points, numbers) / points.value - 1]


def test_a_run_with_another_cause_is_left_out() -> None:
    good = on_a_host((*LOADS, *OTHERS), {})
    strange = replace(good[0], source="strange.json", value=good[0].value * 10)
    learned = learn(None, [*good, strange], store.constants(), now=NOW)
    assert learned.left_out == 1
    assert max(off(learned, good)) < 0.02


def test_versions_add_up_and_a_file_given_again_counts_once() -> None:
    runs = on_a_host(LOADS, {})
    first = learn(None, runs[:2], store.constants(), now=NOW)
    second = learn(first, [*runs[:2], *runs[2:]], store.constants(), now=NOW)
    assert (first.version, second.version) == (1, 2)
    assert second.measurements == tuple(runs)


def test_predictions_use_what_was_learned_and_a_broken_file_is_none() -> None:
    plain = dict(values())
    assert (read_learned(), learned_for("gaudi2")) == (None, None)
    write_learned(learn(None, on_a_host(LOADS, {"read.gaudi2": 0.5}), store.constants(), now=NOW))
    assert values()["read.gaudi2"] < plain["read.gaudi2"]
    assert values()["read.gaudi3"] == plain["read.gaudi3"]
    assert learned_for("gaudi2") is not None and learned_for("gaudi3") is None
    for text in ("", "{}", "[1]", '{"schema": 2}', '{"schema": 1, "version": 1, "values": 3}'):
        state_file().write_text(text + " " * random.Random(text).randrange(1, 50))
        assert read_learned() is None
    assert dict(values()) == plain
