"""Seconds of a warm-up: published figures until this host has its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets.warmup_time import (
    Measured,
    WarmupClass,
    per_graph,
    read_measured,
    record,
)
from gaudi_launch.core.models.model import Model


@pytest.mark.parametrize(
    ("kind", "dtype", "graphs", "seconds"),
    [
        ("dense", "bfloat16", 81, 120),
        ("dense", "bfloat16", 84, 150),
        ("dense", "fp8", 72, 504),
        ("mixture", "bfloat16", 258, 628),
        ("mixture", "bfloat16", 258, 712),
        ("mixture", "fp8", 202, 1162),
        ("mixture", "fp8", 126, 29 * 60),
        ("hybrid", "bfloat16", 258, 613),
        ("hybrid", "bfloat16", 82, 180),
        ("hybrid mixture", "bfloat16", 82, 17 * 60),
    ],
)
def test_published_warm_ups_are_in_the_range_of_their_class(
    kind: WarmupClass, dtype: str, graphs: int, seconds: float
) -> None:
    model = Model("m", "m", layers=4, moe="mixture" in kind)
    if "hybrid" in kind:
        model = replace(model, attention_layers=1)
    one = per_graph(dtype, False, model=model)
    span = one.of_graphs(graphs)
    assert span.low_seconds <= seconds <= span.high_seconds
    shown = {"low": f"{one.low_seconds:.1f}", "high": f"{one.high_seconds:.1f}"}
    assert span.basis == message("warmup.basis_published", **shown)
    assert per_graph(dtype, True, model=model).high_seconds < one.high_seconds


def test_measured_wins(tmp_path: Path) -> None:
    path = tmp_path / "state" / "warmup-times.json"
    assert read_measured(path) == []
    first = Measured("vllm-fork@1.21", "a", 1, "bfloat16", 100, 200.0)
    record(path, first)
    record(path, Measured("vllm-fork@1.21", "b", 8, "bfloat16", 10, 50.0))
    measured = read_measured(path)
    assert measured[0] == first and len(measured) == 2
    same = per_graph(
        "bfloat16", False, measured, engine="vllm-fork@1.21", model=Model("a", "a"), cards=1
    )
    assert (same.basis.id, same.low_seconds, same.high_seconds) == (
        "warmup.basis_measured",
        2.0 / 1.15,
        2.0 * 1.15,
    )
    other = per_graph(
        "bfloat16", False, measured, engine="vllm-fork@1.21", model=Model("c", "c"), cards=1
    )
    assert (other.basis.id, other.low_seconds, other.high_seconds) == (
        "warmup.basis_similar",
        2.0 / 1.6,
        5.0 * 1.6,
    )
    for differs in ({"engine": "vllm-gaudi"}, {"engine": "vllm-fork@1.21", "dtype": "fp8"}):
        found = per_graph(
            differs.get("dtype", "bfloat16"), False, measured, engine=differs["engine"]
        )
        assert found.basis.id == "warmup.basis_published"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"warmups": 3}', '{"warmups": [1, {"graphs": 0}]}', "\x00"]
)
def test_a_broken_file_is_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "warmup-times.json"
    path.write_text(text)
    assert read_measured(path) == []
