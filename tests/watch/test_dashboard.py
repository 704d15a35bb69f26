"""The Grafana dashboard: only metrics of the exporter, and all of its services' ones."""

from __future__ import annotations

import json
import re

from gaudi_launch.watch.dashboard import dashboard, panels
from gaudi_launch.watch.metric_list import METRICS, SERIES

_NAME = re.compile(r"gaudi_launch_\w+")


def test_every_query_is_of_the_exporter() -> None:
    used = set(_NAME.findall(json.dumps(dashboard())))
    assert used <= SERIES
    # what only changes with a launch is not drawn
    drawn = [metric.name for metric in METRICS.values() if set(metric.series) & used]
    assert {
        "service_kv_use_ratio",
        "card_power_watts",
        "disk_free_bytes",
        "node_cpu_use_ratio",
    } <= set(drawn)


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    made = dashboard()["panels"]
    assert len({panel["id"] for panel in made}) == len(made) == len(panels())
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made}) == len(made)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in made)
    assert all(panel["targets"] for panel in made)
