"""Runs in the terminal, and the titles of their pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest

from gaudi_launch import plotting
from gaudi_launch.bench.plot import picture, titles
from gaudi_launch.bench.run_file import BenchRun, Sample
from gaudi_launch.messages import set_language
from gaudi_launch.plotting import Sheet, label


def test_the_titles_name_models_times_and_the_load() -> None:
    set_language("en")
    workload = {"requests": 9, "input_tokens": 90, "output_tokens": 45}
    runs = [
        BenchRun({"model": "a", "began": 0}, {**workload, "rate": 2.5, "concurrency": 4}, {}),
        BenchRun({"model": "b", "began": 60}, {}, {}),
        BenchRun({}, {}, {}),
    ]
    title, load = titles(runs)
    first, second = (f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}" for at in (0, 60))
    assert title == f"a / b / ?, {first}, {second}"
    assert load == "; ".join(
        [
            label("plot.load", **workload),
            label("plot.load_rate", rate="2.5"),
            label("plot.load_limit", limit=4),
        ]
    )
    assert titles([BenchRun({"model": "a"}, workload, {})]) == ("a", label("plot.load", **workload))
    unknown = dict.fromkeys(workload, "?")
    assert titles([BenchRun({}, {}, {})]) == ("?", label("plot.load", **unknown))


class Axes:
    """Axes that list what is drawn on them."""

    def __init__(self) -> None:
        self.drawn: list[tuple[Any, ...]] = []
        self.lines: list[Any] = []
        self.patches: list[Any] = []
        self.xaxis, self.yaxis = "x", "y"

    def __getattr__(self, name: str) -> Any:
        def draw(*words: Any, **options: Any) -> None:
            self.drawn.append((name, *words, options))
            if name == "step":
                self.lines.append(words)
            if name == "stairs":
                self.patches.append(words)

        return draw


def drawn(
    monkeypatch: pytest.MonkeyPatch, runs: list[tuple[str, list[Sample]]]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return what is drawn of these runs: the spread, and the course."""
    axes = Axes(), Axes()

    @contextmanager
    def sheet(*words: Any, **options: Any) -> Iterator[Sheet]:
        assert (words, options) == (("title", "load"), {"columns": 2, "size": (11, 4.8)})
        yield Sheet(None, axes)

    def dress(axis: Axes, *words: str) -> None:
        axis.drawn.append(("dress", *words))

    def plain_numbers(side: str) -> None:
        axes[side == "y"].drawn.append(("plain", side))

    for replaced in (sheet, dress, plain_numbers):
        monkeypatch.setattr(plotting, replaced.__name__, replaced)
    monkeypatch.setattr(plotting, "label", lambda id: id)
    monkeypatch.setattr(Sheet, "rendered", lambda made, ending: ending.encode())
    assert picture(runs, "title", "load", ".png") == b".png"
    return axes[0].drawn, axes[1].drawn
