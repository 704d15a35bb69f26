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


def test_it_follows_the_rules_of_grafanas_linter() -> None:
    """Those of grafana/dashboard-linter@4d0844b4:docs/rules; job and editable do not apply."""
    made = dashboard()
    source, *choices = made["templating"]["list"]
    assert (source["name"], source["label"]) == ("datasource", "Data source")
    uid = "${datasource}"
    found = [
        (each["label"], each["type"], each["multi"], each["allValue"], each["datasource"]["uid"])
        for each in choices
    ]
    assert found == [
        ("Instance", "query", True, ".+", uid),
        ("Service", "query", True, ".+", uid),
    ]
    for panel in made["panels"]:
        assert panel["title"] and panel["description"].endswith(".")
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {uid}
        for target in panel["targets"]:
            assert 'instance=~"$instance"' in target["expr"]
            # a range is Grafana's, which follows the scrape interval
            assert set(re.findall(r"\[(.*?)\]", target["expr"])) <= {"$__rate_interval"}
