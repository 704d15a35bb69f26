"""The metrics of the exporter: a name, once exported, stays."""

from __future__ import annotations

from gaudi_launch.watch import metric_list
from gaudi_launch.watch.metric_list import METRICS, SERIES, Metric
from tests.support.cli import golden


def test_every_metric_has_its_kind_text_and_labels() -> None:
    made = metric_list._metrics()
    lines = [f"{each.name} {each.kind} {','.join(each.labels)}\n    {each.text}\n" for each in made]
    golden("metrics.txt", "".join(lines))
    assert {each.name: each for each in made} == METRICS


def test_the_series_of_each_kind() -> None:
    found = [Metric("a", kind, "text").series for kind in ("gauge", "counter", "summary")]
    assert found == [
        ("gaudi_launch_a",),
        ("gaudi_launch_a_total",),
        ("gaudi_launch_a_sum", "gaudi_launch_a_count"),
    ]
    assert "gaudi_launch_service_restarts_total" in SERIES
