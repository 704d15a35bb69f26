"""The rows of the published figures: which are read, and as what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.performance.published import (
    Figure,
    Kind,
    figures,
    kind_of,
    read_figures,
    scored,
    shapes,
)
from gaudi_launch.performance.shape import Shape
from gaudi_launch.performance.step_model import Setup

SHAPE = Shape(32, 32, 4096, 14336, 8e9, 1e9, 4096, 8, 128)
ROW = {
    "source": "a@1:b",
    "kind": "throughput",
    "harness": "vllm",
    "card": "gaudi3",
    "software": "v0.7.2",
    "model": "m",
    "cards": "2",
    "dtype": "fp8",
    "input": "128",
    "output": "64",
    "batch": "8",
    "value": "250",
    "unit": "output tokens/s",
    "statistic": "total",
    "experts": "",
    "not_scored": "",
    "note": "of note",
}


def read(tmp_path: Path, **changes: str) -> Figure | None:
    row = {**ROW, **changes}
    file = tmp_path / "figures.csv"
    file.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    found = read_figures(file, {"m": SHAPE})
    assert len(found) < 2
    return found[0] if found else None


FIGURE = Figure(
    source="a@1:b",
    measure="throughput",
    statistic="total",
    harness="vllm",
    software="v0.7.2",
    model="m",
    setup=Setup("gaudi3", 2, "fp8", 1.0, 1.0, "v0"),
    shape=SHAPE,
    input=128.0,
    output=64.0,
    batch=8.0,
    value=250.0,
    kind=Kind.SERVED,
    not_scored="",
    note="of note",
)


def test_a_row_is_a_figure(tmp_path: Path) -> None:
    assert read(tmp_path) == FIGURE
    assert FIGURE.title == "m fp8, 2 x gaudi3, 128/64, 8 at once (vllm)"


def test_a_time_in_milliseconds_is_in_seconds(tmp_path: Path) -> None:
    times = {"kind": "tpot", "unit": "ms"}
    assert read(tmp_path, **times) == replace(FIGURE, measure="tpot", value=0.25)
    in_seconds = {"kind": "ttft", "unit": "s", "value": "0.5", "output": ""}
    assert read(tmp_path, **in_seconds) == replace(FIGURE, measure="ttft", value=0.5, output=2.0)


@pytest.mark.parametrize(
    ("changes", "setup"),
    [
        ({"card": "gaudi2", "dtype": "bf16"}, Setup("gaudi2", 2, "bf16", 2.0, 2.0, "v0")),
        ({"software": "v0.9"}, Setup("gaudi3", 2, "fp8", 1.0, 1.0, "v1")),
        ({"harness": "static"}, Setup("gaudi3", 2, "fp8", 1.0, 1.0, "static")),
        ({"experts": "all"}, Setup("gaudi3", 2, "fp8", 1.0, 1.0, "v0", fused=False)),
        ({"experts": "chosen"}, Setup("gaudi3", 2, "fp8", 1.0, 1.0, "v0")),
    ],
)
def test_the_setup_of_a_row(changes: dict[str, str], setup: Setup, tmp_path: Path) -> None:
    figure = read(tmp_path, **changes)
    assert figure is not None and figure.setup == setup


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "other"},
        {"kind": "latency"},
        {"card": "gaudi1"},
        {"cards": ""},
        {"input": "long"},
        {"batch": ""},
        {"value": "-x"},
        {"output": ""},
        {"kind": "tpot", "output": ""},
        {"dtype": "int4"},
    ],
)
def test_a_row_without_a_load_is_left_out(changes: dict[str, str], tmp_path: Path) -> None:
    assert read(tmp_path, **changes) is None


def test_the_class_of_a_load() -> None:
    mixture = replace(SHAPE, experts=1.0)
    assert [
        kind_of(mixture, "static", 1),
        kind_of(SHAPE, "v1", 1),
        kind_of(SHAPE, "v0", 1),
        kind_of(SHAPE, "static", 4),
        kind_of(SHAPE, "static", 5),
    ] == [Kind.MOE, Kind.SERVED, Kind.SERVED, Kind.SMALL, Kind.DENSE]


def test_the_notes_that_change_what_a_figure_informs() -> None:
    notes = ("", "KV cache copied at each step", "torch.compile", "inconsistent with its table")
    found = [
        (figure.copied, figure.other_harness)
        for figure in (replace(FIGURE, note=note) for note in notes)
    ]
    assert found == [(False, False), (True, False), (False, True), (False, True)]


def test_only_the_shipped_figures_without_a_reason_are_scored() -> None:
    assert {figure.not_scored for figure in scored()} == {""}
    assert {*scored()} == {figure for figure in figures() if not figure.not_scored}
    assert 0 < len(scored()) < len(figures())


def test_the_sizes_of_shipped_models() -> None:
    llama = shapes()["Llama-3.1-8B"]
    assert (llama.layers, llama.hidden, llama.inner, llama.width) == (32, 4096, 14336, 4096)
    assert (llama.kv_heads, llama.kv_width, llama.multi_head, llama.mla_rank) == (8, 128, False, 0)
    assert (llama.head, llama.experts, llama.latent) == (128256 * 4096, 0.0, False)
    assert llama.body + 2 * llama.head == 8_030_261_248
    mixtral = shapes()["Mixtral-8x7B"]
    assert (mixtral.kv_heads, mixtral.inner) == (8, 28672)
    latent = {name for name, shape in shapes().items() if shape.latent}
    ranks = {name: shape.mla_rank for name, shape in shapes().items() if shape.mla_rank}
    assert latent == {"DeepSeek-V2-Lite", "MiniCPM3-4B", "Moonlight-16B-A3B"}
    assert ranks == {"DeepSeek-V2-Lite": 576, "Moonlight-16B-A3B": 576}
