"""Alert rules and the dashboard as objects of a cluster."""

from __future__ import annotations

import json

from gaudi_launch.kubernetes.chart_values import Name, plain
from gaudi_launch.kubernetes.objects.monitoring_objects import monitoring_objects
from gaudi_launch.watch.alerts import rule_groups
from gaudi_launch.watch.dashboard import dashboard


def test_the_rules_and_a_dashboard_that_grafana_finds() -> None:
    rules, made = (plain(each) for each in monitoring_objects(Name("chat")))
    shared = {
        "app.kubernetes.io/name": "chat",
        "app.kubernetes.io/instance": "chat",
        "app.kubernetes.io/managed-by": "gaudi-launch",
    }
    assert rules == {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "chat-alerts",
            "labels": {**shared, "app.kubernetes.io/component": "alerts"},
        },
        "spec": rule_groups(),
    }
    text = made["data"].pop("gaudi-launch.json")
    assert made == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "chat-dashboard",
            "labels": {
                **shared,
                "app.kubernetes.io/component": "dashboard",
                "grafana_dashboard": "1",
            },
        },
        "data": {},
    }
    assert json.loads(text) == dashboard()
