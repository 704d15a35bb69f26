"""Past values, for the lines that draw them."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.extensions.watch.sample import CardSample, HostSample, NodeSample, ServiceSample
from gaudi_launch.extensions.watch.trails import Trails, card_name

HOST = HostSample(
    "h",
    1.0,
    cards=(CardSample(3, 0, utilization_percent=80, power_w=300), CardSample(None, 1)),
    services=(ServiceSample("a", "ready", True, tokens_per_second=9.5),),
    nodes=(NodeSample(1, 12.5),),
)


def test_each_value_has_a_trail_by_host_kind_and_name() -> None:
    trails = Trails()
    trails.add(HOST)
    trails.add(replace(HOST, cards=()))
    trails.add(replace(HOST, host="other"))
    found = [
        trails.of("h", kind, name)
        for kind, name in (
            ("use", "3"),
            ("power", "3"),
            ("use", "i1"),
            ("tokens", "a"),
            ("cpu", "1"),
            ("cpu", "2"),
        )
    ]
    assert found == [(80,), (300,), (None,), (9.5, 9.5), (12.5, 12.5), ()]
    assert trails.of("other", "cpu", "1") == (12.5,)


def test_a_trail_keeps_two_minutes() -> None:
    trails = Trails()
    for second in range(130):
        trails.add(HostSample("h", 1.0, nodes=(NodeSample(0, float(second)),)))
    assert trails.of("h", "cpu", "0") == tuple(float(second) for second in range(10, 130))


def test_the_name_of_a_card() -> None:
    assert [card_name(3, 0), card_name(None, 4), card_name(None, None)] == ["3", "i4", "?"]
