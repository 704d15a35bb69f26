"""The picture of latency against load."""

from __future__ import annotations

import pytest

from gaudi_launch import plotting
from gaudi_launch.capacity.latency_chart import column_of, number, panels, picture
from gaudi_launch.capacity.search import Curve, LoadPoint, Targets
from gaudi_launch.messages import set_language
from tests.support.plots import needs_matplotlib, noted_sheet, size_of, texts

CURVE = Curve(
    tuple(
        LoadPoint(float(at), at / 10, 0.1 * at, 0.001 * at * at, 1.0, 1.0) for at in range(1, 10)
    ),
    10.0,
    0.0,
)


def test_panels_hold_every_column_and_the_target() -> None:
    ttft, tpot = panels(CURVE, 2.0, None, 17)
    assert (len(ttft.values), ttft.target, tpot.target) == (17, 2.0, None)
    assert (ttft.name, ttft.unit, ttft.factor) == ("TTFT", "S", 1.0)
    assert (tpot.name, tpot.unit, tpot.factor) == ("TPOT", "MS", 1000.0)
    assert (tpot.values[0], tpot.values[-1]) == pytest.approx((0.001, 0.081))
    assert [each.target for each in panels(CURVE, None, 0.05, 3)] == [None, 0.05]
    # a margin above the highest and below the lowest
    assert (ttft.low, ttft.high) == pytest.approx((0.1 / 1.15, 2.0 * 1.15))
    assert (tpot.low, tpot.high) == pytest.approx((0.001 / 1.15, 0.081 * 1.15))
    assert ttft.values[0] == 0.1 and ttft.values[-1] == 0.9
    assert 0 < ttft.height(0.1) < ttft.height(2.0) < 1
    assert [column_of(CURVE, rate, 17) for rate in (0.0, 1.0, 5.0, 9.0, 99.0)] == [0, 0, 8, 16, 16]


def test_both_latencies_are_drawn_against_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = noted_sheet(monkeypatch, "the title", (9, 7))
    plain: list[str] = []
    monkeypatch.setattr(plotting, "plain_numbers", plain.append)
    assert picture(CURVE, Targets(0.5, 0.05, 90.0), 4.0, "the title", ".svg") == b".svg"
    assert plain == ["y", "y"]
    rates = [load.rate for load in CURVE.loads]
    parts = (
        ("ttft", "s", [load.ttft for load in CURVE.loads], 0.5, "0.5 s"),
        ("tpot", "ms", [1000 * load.tpot for load in CURVE.loads], 50.0, "50 ms"),
    )
    for axis, (name, unit, latencies, target, shown) in zip(axes, parts, strict=True):
        assert axis.drawn == [
            (
                "dress",
                (f"plot.{name}", {}),
                ("plot.requests_per_s", {}),
                (f"plot.{name}_{unit}", {}),
            ),
            (
                "plot",
                (rates, latencies),
                {
                    "color": plotting.BLUE,
                    "marker": "o",
                    "markersize": 3,
                    "label": ("plot.simulated", {"percentile": "90"}),
                },
            ),
            (
                "axhline",
                (target,),
                {
                    "color": plotting.RED,
                    "linestyle": "--",
                    "label": ("plot.target", {"value": shown}),
                },
            ),
            (
                "axvline",
                (4.0,),
                {
                    "color": plotting.GREEN,
                    "linestyle": ":",
                    "linewidth": 2,
                    "label": ("plot.replica", {"rate": "4"}),
                },
            ),
            ("set_yscale", ("log",), {}),
            ("legend", (), {"loc": "best"}),
        ]


@needs_matplotlib
def test_the_picture_names_axes_units_targets_and_the_load() -> None:
    set_language("en")
    words = texts(picture(CURVE, Targets(0.5, 0.05, 90.0), 4.0, "the title", ".svg"))
    plain = texts(picture(CURVE, Targets(None, None), None, "the title", ".svg"))
    set_language(None)
    both = {"the title", "TTFT (s)", "TPOT (ms)", "load of one replica (requests per second)"}
    assert both - set(words) == set()
    assert both - set(plain) == set()
    chosen = {
        "simulated, p90",
        "target: 0.5 s",
        "target: 50 ms",
        "load of each replica: 4 requests/s",
    }
    assert chosen - set(words) == set()
    assert [word for word in plain if word.startswith(("target", "load of each"))] == []


@needs_matplotlib
@pytest.mark.parametrize("value", [1e-7, 0.0123, 1.0, 31.04, 999.6, 12345.6, 3e9])
def test_every_figure_can_be_drawn(value: float) -> None:
    low = LoadPoint(value, 0.1, value, value, 1, 1)
    high = LoadPoint(2 * value, 0.2, value, value, 1, 1)
    drawn = picture(Curve((low, high), 1, 0), Targets(None, None), None, "t", ".png")
    assert size_of(drawn) == (1350, 1050)
    assert float(number(value)) == float(f"{value:.3g}") or value >= 1000
