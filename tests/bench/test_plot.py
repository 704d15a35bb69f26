"""Runs in the terminal, and the titles of their pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest

from gaudi_launch import plotting
from gaudi_launch.bench.plot import histogram, picture, terminal, titles
from gaudi_launch.bench.run_file import BenchRun, Sample
from gaudi_launch.messages import set_language
from gaudi_launch.plotting import BLUE, ORANGE, Sheet, label


def sample(at: float, ttft: float) -> Sample:
    return Sample(at, at, 8, 2, at + ttft, at + ttft + 1.0, (1.0,), 8, 2)


def test_the_cells_are_equal_on_a_logarithmic_scale() -> None:
    found = histogram([1.0, 1.5, 3.0, 16.0, 0.0], rows=4)
    assert [count for _, _, count in found] == [2, 1, 0, 1]
    ends = [low for low, _, _ in found] + [found[-1][1]]
    assert ends == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0])
    assert histogram([2.0, 2.0]) == [(2.0, 2.0, 2)]
    assert histogram([0.0, -1.0]) == []


def test_the_lines_of_both_plots() -> None:
    samples = [sample(0.0, 0.25), sample(1.0, 0.25), sample(2.0, 4.0)]
    lines = terminal(samples, ("TTFT", "rate"), width=30, ascii=True)
    assert (lines[0], lines[9], lines[10], len(lines)) == ("TTFT", "", "rate", 13)
    assert lines[1] == "  250 ms -  354 ms |" + "@" * 10 + " 2"
    assert lines[2] == "  354 ms -  500 ms | 0"
    assert lines[8] == "  2.83 s -     4 s |" + "@" * 5 + " 1"
    assert lines[12] == " " * 10 + "0" + "7 s".rjust(29)
    assert terminal([], ("a", "b")) == []


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


def test_the_picture_has_the_share_of_requests_and_the_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = [sample(0.0, 0.5), sample(0.0, 0.25), sample(0.0, 0.0)]
    other = [Sample(0.0, 0.0, 8, 80, 1.0, 2.0, (1.0,), 8, 80)]
    spread, course = drawn(monkeypatch, [("one", one), ("other", other)])
    blue = {"where": "post", "color": BLUE, "label": "one"}
    orange = {"where": "post", "color": ORANGE, "label": "other"}
    assert spread == [
        ("dress", "plot.spread", "plot.ttft_ms", "plot.share_requests"),
        ("step", [250.0, 250.0, 500.0], [0, 50.0, 100.0], blue),
        ("step", [1000.0, 1000.0], [0, 100.0], orange),
        ("set_xscale", "log", {}),
        ("plain", "x"),
        ("legend", {"loc": "lower right"}),
        ("set_ylim", 0, 101, {}),
        ("set_yticks", [0, 25, 50, 75, 90, 99], {}),
    ]
    rates = [0.0] * 80
    # forty tokens at one second and at two, in cells of 25 ms
    rates[40] = rates[79] = 1600.0
    assert [step[0] for step in course] == [
        *("dress", "stairs", "stairs", "set_xlim", "set_ylim", "plain", "legend")
    ]
    assert course[0] == ("dress", "plot.course", "plot.time_s", "measure.name_output_rate")
    options = {"color": ORANGE, "label": "other", "linewidth": 1.5}
    edges = [0.025 * place for place in range(81)]
    assert course[2] == ("stairs", rates, edges, options)
    assert course[3:] == [
        ("set_xlim", {"left": 0}),
        ("set_ylim", {"bottom": 0}),
        ("plain", "y"),
        ("legend", {"loc": "lower center"}),
    ]


def test_a_run_without_answers_has_neither_line_nor_legend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spread, course = drawn(monkeypatch, [("one", [Sample(0.0, 0.0, 8, 2, error="cut")])])
    assert [step[0] for step in spread] == ["dress", "set_ylim", "set_yticks"]
    assert [step[0] for step in course] == ["dress", "set_xlim", "set_ylim", "plain"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0123, "12.3 ms"), (0.9994, "999 ms"), (0.9995, "1 s"), (99.9, "99.9 s"), (100.4, "100 s")],
)
def test_times_have_three_digits(seconds: float, shown: str) -> None:
    lines = terminal([sample(0.0, seconds)], ("a", "b"))
    assert lines[1].split("-")[0].strip() == shown
