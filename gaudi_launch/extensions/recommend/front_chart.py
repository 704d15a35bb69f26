"""Draw both fronts: speed against TPOT, and cards against the rate."""

from __future__ import annotations

from gaudi_launch.extensions.recommend.finder import Recommendation
from gaudi_launch.extensions.recommend.front import cards_for_rates
from gaudi_launch.extensions.recommend.trial import Trial


def picture(found: Recommendation, title: str, ending: str) -> bytes:
    """Return the picture as a PNG or SVG file. Raises LaunchError (FAILED)."""
    from gaudi_launch.core.base.plotting import BLUE, GREEN, GREY, dress, label, rendered, sheet

    with sheet(title, rows=2, size=(9, 8)) as made:
        speed, cards = made.axes
        dress(speed, label("plot.front"), label("plot.tpot_ms"), label("plot.per_card"))
        others = points([trial for trial in found.trials if trial not in found.front])
        if others:
            speed.scatter(*zip(*others, strict=True), color=GREY, s=18, label=label("plot.others"))
        best = points(found.front)
        if best:
            speed.plot(
                *zip(*best, strict=True),
                color=BLUE,
                marker="o",
                markersize=4,
                label=label("plot.front"),
            )
        if found.winner is not None:
            answer = points([found.winner])
            speed.scatter(
                *zip(*answer, strict=True),
                color=GREEN,
                s=60,
                marker="*",
                label=label("plot.answer"),
            )
        speed.legend(loc="best")
        dress(cards, label("plot.cards"), label("plot.requests_per_s"), label("plot.cards"))
        rates = cards_for_rates(found.case, found.trials, found.goal.rate)
        x, y = [rate for rate, _ in rates], [count for _, count in rates]
        cards.step(x, y, color=BLUE, where="post", marker="o")
        return rendered(made, ending)


def points(trials: list[Trial] | tuple[Trial, ...]) -> list[tuple[float, float]]:
    """Return (TPOT in ms, tokens per second and card) of simulated trials."""
    found: list[tuple[float, float]] = []
    for trial in trials:
        if trial.served is not None:
            found.append((1000 * trial.served.tpot, trial.served.per_card))
    return found
