"""The metrics of the exporter: the series of each kind."""

from __future__ import annotations

from gaudi_launch.extensions.watch.metric_list import METRICS, SERIES, Metric


def test_the_series_of_each_kind() -> None:
    assert {each.kind for each in METRICS.values()} == {"gauge", "counter", "summary"}
    found = [Metric("a", kind, "text").series for kind in ("gauge", "counter", "summary")]
    assert found == [
        ("gaudi_launch_a",),
        ("gaudi_launch_a_total",),
        ("gaudi_launch_a_sum", "gaudi_launch_a_count"),
    ]
    assert "gaudi_launch_service_restarts_total" in SERIES
