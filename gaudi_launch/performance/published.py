"""The shipped published figures: reading, classes, and the setup of each."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gaudi_launch.models.model import Model
from gaudi_launch.performance import constants
from gaudi_launch.performance.shape import Shape, shape_of
from gaudi_launch.performance.step_model import Engine, Generation, Setup

# a batch of up to this size is bound by reading weights and by launching
SMALL_BATCH = 4
# the note of a figure that was measured on this host
MEASURED_HERE = "measured here"


class Kind(Enum):
    """The class by which a figure or a prediction is judged: its errors are alike."""

    DENSE = "dense"
    SERVED = "served"
    SMALL = "small"
    MOE = "moe"


@dataclass(frozen=True)
class Figure:
    """One published speed.

    ``value`` is output tokens per second, or seconds for TTFT and TPOT.

    ``not_scored`` says why a figure is shown only ("" for the others), ``copied`` that the harness
    copied the KV cache at each step.
    """

    source: str
    measure: str
    statistic: str
    harness: str
    software: str
    model: str
    setup: Setup
    shape: Shape
    input: float
    output: float
    batch: float
    value: float
    kind: Kind
    not_scored: str
    note: str

    @property
    def copied(self) -> bool:
        """Return True if each step copied the KV cache."""
        return "KV cache copied" in self.note

    @property
    def other_harness(self) -> bool:
        """Return True if the figure does not inform the constants.

        It was launched in another way, or is inconsistent.
        """
        return "torch.compile" in self.note or "inconsistent" in self.note

    @property
    def title(self) -> str:
        """Return the load in one line."""
        card = f"{self.setup.cards} x {self.setup.generation}"
        load = f"{self.input:g}/{self.output:g}, {self.batch:g} at once"
        return f"{self.model} {self.setup.math}, {card}, {load} ({self.harness})"


def kind_of(shape: Shape, engine: Engine, batch: float) -> Kind:
    """Return the class whose errors a load has."""
    if shape.experts:
        return Kind.MOE
    if engine != "static":
        return Kind.SERVED
    if batch <= SMALL_BATCH:
        return Kind.SMALL
    return Kind.DENSE


@cache
def figures() -> tuple[Figure, ...]:
    """Return the shipped figures of serving speed with a model, card and load."""
    return read_figures(constants.folder() / "figures.csv", shapes())


def scored() -> tuple[Figure, ...]:
    """Return the figures that the model is held against."""
    return tuple(figure for figure in figures() if not figure.not_scored)


@cache
def shapes() -> Mapping[str, Shape]:
    """Return the sizes of the models that figures name."""
    found: dict[str, Shape] = {}
    with (constants.folder() / "shapes.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            shape = shape_of(_model(row))
            if shape is not None:
                found[row["model"]] = shape
    return found


# a model with latent attention without the rank of its cache
_CONFIGS: Mapping[str, Mapping[str, Any]] = {"yes": {"kv_lora_rank": None}}


def _model(row: Mapping[str, str]) -> Model:
    experts = _whole(row["experts"])
    return Model(
        path=row["model"],
        name=row["model"],
        parameters=_whole(row["parameters"]),
        moe=bool(experts),
        experts=experts,
        layers=_whole(row["layers"]),
        hidden_size=_whole(row["hidden"]),
        intermediate_size=_whole(row["intermediate"]),
        heads=_whole(row["heads"]),
        kv_heads=_whole(row["kv_heads"]),
        head_dim=_whole(row["head_dim"]),
        mla_rank=_whole(row["mla_rank"]),
        vocab_size=_whole(row["vocab"]),
        tie_word_embeddings=row["tied"] == "yes",
        config=_CONFIGS.get(row["latent"], {}),
    )


def _whole(text: str) -> int | None:
    if not text:
        return None
    return int(text)


def read_figures(file: Path, known: Mapping[str, Shape]) -> tuple[Figure, ...]:
    """Return the speeds of ``file`` with a stated load and a model in ``known``."""
    found: list[Figure] = []
    with file.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            figure = _figure(row, known)
            if figure is not None:
                found.append(figure)
    return tuple(found)


# type of the multiplications and bytes of an element, by data type
_PRECISIONS: Mapping[str, tuple[Literal["bf16", "fp8"], float]] = {
    "bf16": ("bf16", 2.0),
    "fp8": ("fp8", 1.0),
}


def _figure(row: Mapping[str, str], known: Mapping[str, Shape]) -> Figure | None:
    shape = known.get(row["model"])
    if shape is None or row["kind"] not in ("throughput", "ttft", "tpot"):
        return None
    generation = _generation(row["card"])
    numbers = [_number(row[name]) for name in ("cards", "input", "batch", "value")]
    output = _number(row["output"])
    if row["kind"] == "ttft" and output is None:
        output = 2.0
    if generation is None or row["dtype"] not in _PRECISIONS:
        return None
    if output is None or None in numbers:
        return None
    cards, length, batch, value = (number or 0.0 for number in numbers)
    in_seconds = {"ms": 1e-3}.get(row["unit"], 1.0)
    engine = _engine(row["harness"], row["software"])
    math, each = _PRECISIONS[row["dtype"]]
    setup = Setup(
        generation=generation,
        cards=int(cards),
        math=math,
        weight_bytes=each,
        kv_bytes=each,
        engine=engine,
        fused=row["experts"] != "all",
    )
    return Figure(
        source=row["source"],
        measure=row["kind"],
        statistic=row["statistic"],
        harness=row["harness"],
        software=row["software"],
        model=row["model"],
        setup=setup,
        shape=shape,
        input=length,
        output=output,
        batch=batch,
        value=value * in_seconds,
        kind=kind_of(shape, engine, batch),
        not_scored=row["not_scored"],
        note=row["note"],
    )


def _generation(card: str) -> Generation | None:
    if card == "gaudi2":
        return "gaudi2"
    if card == "gaudi3":
        return "gaudi3"
    return None


def _engine(harness: str, software: str) -> Engine:
    """Return the engine of a figure: none for static batches, else V0 or V1 of vLLM.

    Assumed by the figure's age: V0 up to 0.7.2, V1 from 2026 on.
    """
    if harness != "vllm":
        return "static"
    if "v0.7" in software:
        return "v0"
    return "v1"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
