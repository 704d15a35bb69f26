"""The shipped published figures: reading, classes, and the setup of each."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from gaudi_launch.core.predict import constants
from gaudi_launch.core.predict.shape import Shape
from gaudi_launch.core.predict.step_model import Engine, Generation, Setup

# a batch of up to this size is bound by reading weights and by launching
SMALL_BATCH = 4
# `vllm bench serve --random-range-ratio 0.2`
_SPREAD, _SPREAD_NOTE = 0.2, "lengths within 20 %"
# the harness copied the KV cache at each step (torch.cat): it is read and written once more
_COPIES, _COPIED_NOTE = 2.0, "KV cache copied"
# assumed for runs that do not state the tokens of a step: others state 4096, 8192 or 16384
STEP_TOKENS = 8192
# the note of a figure that was measured on this host
MEASURED_HERE = "measured here"


class Kind(Enum):
    """The class by which a figure or a prediction is judged: its errors are alike."""

    DENSE = "dense"
    SMALL = "small"
    MIXTURE = "mixture"
    MLA = "mla"
    HYBRID = "hybrid"
    SERVED = "dense_served"
    MIXTURE_SERVED = "mixture_served"
    MLA_SERVED = "mla_served"
    HYBRID_SERVED = "hybrid_served"


@dataclass(frozen=True)
class Figure:
    """One speed, published or measured on this host.

    ``measure`` is throughput (``value`` in output tokens per second), ttft or tpot (seconds).
    ``requests`` of the run; 0 where they are as many as the batch. ``mode``: lazy, compiled, or ""
    where it is not stated.

    ``not_scored`` says why a figure is shown only ("" for the others).
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
    not_scored: str = ""
    note: str = ""
    mode: str = ""
    requests: float = 0.0

    @cached_property
    def kind(self) -> Kind:
        """Return the class whose errors it has."""
        return kind_of(self.shape, self.setup.engine, self.batch)

    @property
    def spread(self) -> float:
        """Return the share of their mean within which the lengths of the run were drawn."""
        return _SPREAD * (_SPREAD_NOTE in self.note)

    @property
    def other_harness(self) -> bool:
        """Return True if the figure does not inform the constants.

        It was launched in another way, by a fork with its own code, or is inconsistent.
        """
        inconsistent = "torch.compile" in self.note or "inconsistent" in self.note
        return inconsistent or self.harness.startswith("port ")

    @property
    def owner(self) -> str:
        """Return who published the figure: the owner of a repository, or a site."""
        return self.source.removeprefix("github.com/").partition("/")[0]

    @property
    def title(self) -> str:
        """Return the load in one line."""
        card = f"{self.setup.cards} x {self.setup.generation}"
        load = f"{self.input:g}/{self.output:g}, {self.batch:g} at once"
        return f"{self.model} {self.setup.math}, {card}, {load} ({self.harness})"


def kind_of(shape: Shape, engine: Engine, batch: float) -> Kind:
    """Return the class whose errors a load has."""
    kind = Kind.DENSE
    if shape.state_layers:
        kind = Kind.HYBRID
    elif shape.mla_rank:
        kind = Kind.MLA
    elif shape.experts:
        kind = Kind.MIXTURE
    if engine != "static":
        return Kind(f"{kind.value}_served")
    if kind is Kind.DENSE and batch <= SMALL_BATCH:
        return Kind.SMALL
    return kind


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
    names = [field.name for field in fields(Shape)]
    found: dict[str, Shape] = {}
    with (constants.folder() / "shapes.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            sizes: dict[str, Any] = {name: _size(row[name]) for name in names}
            found[row["model"]] = Shape(**sizes)
    return found


def _size(text: str) -> float | bool:
    if text in ("yes", "no"):
        return text == "yes"
    return float(text or 0)


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
    math, each = _PRECISIONS[row["dtype"]]
    setup = Setup(
        generation=generation,
        cards=int(cards),
        math=math,
        weight_bytes=each,
        kv_bytes=each * (1 + _COPIES * (_COPIED_NOTE in row["note"])),
        engine=_engine(row["harness"], row["software"]),
        fused=row["experts"] != "all",
        step_tokens=int(row["budget"] or 0),
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
        not_scored=row["not_scored"],
        note=row["note"],
        mode=row["mode"],
        requests=float(row["requests"] or 0),
    )


def _generation(card: str) -> Generation | None:
    if card == "gaudi2":
        return "gaudi2"
    if card == "gaudi3":
        return "gaudi3"
    return None


def _engine(harness: str, software: str) -> Engine:
    """Return the engine of a figure: none for static batches, else V0 or V1 of vLLM.

    Assumed by the figure's age where it is not stated: V0 up to 0.7.2, V1 from 2026 on.
    """
    if not harness.startswith(("vllm", "port ")):
        return "static"
    if "v0.7" in software or "V0" in software:
        return "v0"
    return "v1"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
