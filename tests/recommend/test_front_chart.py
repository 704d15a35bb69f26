"""The picture of both fronts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch import plotting
from gaudi_launch.recommend.finder import Recommendation
from gaudi_launch.recommend.front_chart import picture, points
from gaudi_launch.recommend.goal import Served
from gaudi_launch.recommend.space import Candidate
from gaudi_launch.recommend.trial import Trial
from tests.support.recommend import goal, table_case

ONE = Candidate("toy", "bf16", 1, 8, 1, 2048, 4096, False)


def trial(tokens: float, tpot: float) -> Trial:
    """Return a trial of one replica on one card."""
    return Trial(ONE, Served(1, 1, 1, 0.1, tpot, 1.0, tokens, tokens, 4096, 1.0))


FAST, SLOW, BEATEN = trial(50.0, 0.01), trial(100.0, 0.05), trial(40.0, 0.02)


class Axis:
    """An axis that notes what is drawn."""

    def __init__(self) -> None:
        self.drawn: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def draw(*values: Any, **style: Any) -> None:
            self.drawn.append((name, [list(each) for each in values], style))

        return draw


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> tuple[Axis, Axis]:
    """Replace the library of pictures; return the axes of the picture."""
    made = Axis(), Axis()

    @contextmanager
    def sheet(title: str, *, rows: int, size: tuple[int, int]) -> Iterator[Any]:
        assert (title, rows, size) == ("the title", 2, (9, 8))
        yield SimpleNamespace(axes=made, rendered=lambda ending: ending.encode())

    def dress(axis: Axis, *words: str) -> None:
        axis.drawn.append(("dress", *words))

    monkeypatch.setattr(plotting, "sheet", sheet)
    monkeypatch.setattr(plotting, "dress", dress)
    monkeypatch.setattr(plotting, "label", lambda id: id)
    return made


def found(winner: Trial | None, *trials: Trial, front: tuple[Trial, ...]) -> Recommendation:
    return Recommendation(
        table_case(), goal("balanced", rate=5.0), winner, None, trials, front, (), 9, 9
    )


def test_the_front_the_others_and_the_answer_are_drawn(axes: tuple[Axis, Axis]) -> None:
    every = found(SLOW, SLOW, BEATEN, FAST, Trial(ONE), front=(FAST, SLOW))
    assert picture(every, "the title", ".svg") == b".svg"
    speed, cards = axes
    grey, blue, green = plotting.GREY, plotting.BLUE, plotting.GREEN
    assert speed.drawn == [
        ("dress", "plot.front", "plot.tpot_ms", "plot.per_card"),
        ("scatter", [[20.0], [40.0]], {"color": grey, "s": 18, "label": "plot.others"}),
        (
            "plot",
            [[10.0, 50.0], [50.0, 100.0]],
            {"color": blue, "marker": "o", "markersize": 4, "label": "plot.front"},
        ),
        (
            "scatter",
            [[50.0], [100.0]],
            {"color": green, "s": 60, "marker": "*", "label": "plot.answer"},
        ),
        ("legend", [], {"loc": "best"}),
    ]
    # ten requests per second of a card with 100 tokens per second
    assert cards.drawn == [
        ("dress", "plot.cards", "plot.requests_per_s", "plot.cards"),
        (
            "step",
            [[2.5, 5.0, 10.0, 25.0, 50.0], [1, 1, 1, 3, 5]],
            {"color": blue, "where": "post", "marker": "o"},
        ),
    ]


def test_a_search_without_an_answer_is_drawn_too(axes: tuple[Axis, Axis]) -> None:
    assert picture(found(None, Trial(ONE), front=()), "the title", ".png") == b".png"
    assert [each[0] for each in axes[0].drawn] == ["dress", "legend"]
    assert axes[1].drawn[1][1] == [[], []]


def test_points_are_milliseconds_and_tokens_of_a_card() -> None:
    assert points([FAST, Trial(ONE), SLOW]) == [(10.0, 50.0), (50.0, 100.0)]
