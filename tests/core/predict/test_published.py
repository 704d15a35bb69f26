"""The rows of the published figures: which are read, and as what."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gaudi_launch.core.models.config import model_from_config
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.predict.published import Figure, read_figures, scored, shapes
from gaudi_launch.core.predict.shape import Shape, shape_of
from gaudi_launch.core.predict.step_model import Setup
from tests.support.places import TESTS

DATA = TESTS / "data"
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
    "mode": "lazy",
    "requests": "24",
    "budget": "",
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
    note="of note",
    mode="lazy",
    requests=24.0,
)


def test_the_sizes_of_shipped_models() -> None:
    llama = shapes()["Llama-3.1-8B"]
    assert (llama.layers, llama.hidden, llama.inner, llama.width) == (32, 4096, 14336, 4096)
    assert (llama.kv_heads, llama.kv_width, llama.multi_head, llama.mla_rank) == (8, 128, False, 0)
    assert (llama.head, llama.experts, llama.latent) == (128256 * 4096, 0.0, False)
    assert llama.body + 2 * llama.head == 8_030_261_248
    # "37B activated for each token" (deepseek-ai/DeepSeek-V3: README.md)
    assert shapes()["DeepSeek-R1"].active / 1e9 == pytest.approx(37, rel=0.05)
    latent = {name for name, shape in shapes().items() if shape.latent}
    ranks = {name: shape.mla_rank for name, shape in shapes().items() if shape.mla_rank}
    wide = dict.fromkeys(("DeepSeek-V2-Lite", "Moonlight-16B-A3B", "DeepSeek-R1", "GLM-5.2"), 576)
    assert ranks == {**wide, "GLM-5.3-Flash": 512}
    assert latent == {*ranks, "MiniCPM3-4B"}
    states = {name: shape.state_layers for name, shape in shapes().items() if shape.state_layers}
    assert states == {"Qwen3.6-35B-A3B": 30, "Qwen3.8-27B": 48, "GLM-5.3-Flash": 34}


CONFIGS = json.loads((DATA / "models" / "published.json").read_text())["configs"]
OF_FIGURES = {
    "mistralai/Mixtral-8x7B-v0.1": "Mixtral-8x7B",
    "Qwen/Qwen3-235B-A22B": "Qwen3-235B-A22B",
    "Qwen/Qwen3-30B-A3B": "Qwen3-30B-A3B",
    "Qwen/Qwen3.5-35B-A3B": "Qwen3.6-35B-A3B",
    "Qwen/Qwen3-VL-32B-Instruct": "Qwen3-VL-32B",
    "deepseek-ai/DeepSeek-R1": "DeepSeek-R1",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_profile_and_the_figures_have_the_sizes_of_config_json(name: str) -> None:
    expected = shape_of(model_from_config(name, CONFIGS[name]))
    listed = shape_of(known_model(name, must_exist=False))
    assert expected is not None and listed is not None
    # parameters of a profile include towers
    assert asdict(listed) == pytest.approx(asdict(expected), rel=0.05)
    if name in OF_FIGURES:
        assert asdict(shapes()[OF_FIGURES[name]]) == pytest.approx(asdict(expected), rel=1e-5)


def test_each_ttft_that_is_scored_states_its_statistic_and_its_requests() -> None:
    unstated = [
        figure.title
        for figure in scored()
        if figure.measure == "ttft"
        and figure.setup.engine != "static"
        and not (figure.statistic in ("mean", "median", "p90") and figure.requests)
    ]
    assert unstated == []


def test_a_figure_is_counted_for_who_published_it() -> None:
    sources = ("huggingface/optimum-habana@1:a", "github.com/huggingface/tgi/pull/1", "own log")
    assert [replace(FIGURE, source=source).owner for source in sources] == [
        "huggingface",
        "huggingface",
        "own log",
    ]
