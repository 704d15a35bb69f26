"""The picture of both fronts."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base import plotting
from gaudi_launch.extensions.recommend.finder import Recommendation
from gaudi_launch.extensions.recommend.goal import Served
from gaudi_launch.extensions.recommend.space import Candidate
from gaudi_launch.extensions.recommend.trial import Trial
from gaudi_launch.extensions.recommend.view import front_picture
from tests.support.plots import NotedAxis, noted_sheet
from tests.support.recommend import goal, table_case

ONE = Candidate("toy", "bf16", 1, 8, 1, 2048, 4096, False)


def trial(tokens: float, tpot: float) -> Trial:
    """Return a trial of one replica on one card."""
    return Trial(ONE, served=Served(1, 1, 1, 0.1, tpot, 1.0, tokens, tokens, 4096, 1.0))


FAST, SLOW, BEATEN = trial(50.0, 0.01), trial(100.0, 0.05), trial(40.0, 0.02)


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> tuple[NotedAxis, NotedAxis]:
    """Replace the library of pictures; return the axes of the picture."""
    return noted_sheet(monkeypatch, "the title", (9, 8))


def words(*ids: str) -> list[tuple[str, dict[str, str]]]:
    return [(f"plot.{id}", {}) for id in ids]


def found(winner: Trial | None, *trials: Trial, front: tuple[Trial, ...]) -> Recommendation:
    return Recommendation(
        table_case(), goal("balanced", rate=5.0), winner, None, trials, front, (), 9, 9
    )


def test_the_front_the_others_and_the_answer_are_drawn(axes: tuple[NotedAxis, NotedAxis]) -> None:
    every = found(SLOW, SLOW, BEATEN, FAST, Trial(ONE), front=(FAST, SLOW))
    assert front_picture(every, "the title", ".svg") == b".svg"
    speed, cards = axes
    grey, blue, green = plotting.GREY, plotting.BLUE, plotting.GREEN
    front, others, answer = words("front", "others", "answer")
    assert speed.drawn == [
        ("dress", *words("front", "tpot_ms", "per_card")),
        ("scatter", ((20.0,), (40.0,)), {"color": grey, "s": 18, "label": others}),
        (
            "plot",
            ((10.0, 50.0), (50.0, 100.0)),
            {"color": blue, "marker": "o", "markersize": 4, "label": front},
        ),
        ("scatter", ((50.0,), (100.0,)), {"color": green, "s": 60, "marker": "*", "label": answer}),
        ("legend", (), {"loc": "best"}),
    ]
    # ten requests per second of a card with 100 tokens per second
    assert cards.drawn == [
        ("dress", *words("cards", "requests_per_s", "cards")),
        (
            "step",
            ([2.5, 5.0, 10.0, 25.0, 50.0], [1, 1, 1, 3, 5]),
            {"color": blue, "where": "post", "marker": "o"},
        ),
    ]


def test_a_search_without_an_answer_is_drawn_too(axes: tuple[NotedAxis, NotedAxis]) -> None:
    assert front_picture(found(None, Trial(ONE), front=()), "the title", ".png") == b".png"
    assert [each[0] for each in axes[0].drawn] == ["dress", "legend"]
    assert axes[1].drawn[1][1] == ([], [])
