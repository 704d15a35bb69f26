"""Alert rules and a dashboard as objects of a cluster.

They use the exporter's metrics (`watch.metric_list`).
"""

from __future__ import annotations

import json
from typing import Any

from gaudi_launch.kubernetes.chart_values import Name
from gaudi_launch.kubernetes.objects.extras import config_map, shared_labels
from gaudi_launch.kubernetes.objects.pod import claim
from gaudi_launch.watch.alerts import rule_groups
from gaudi_launch.watch.dashboard import dashboard

# the label by which the Grafana chart's sidecar finds dashboards (grafana/helm-charts:
# charts/grafana/values.yaml)
_DASHBOARD_LABEL = {"grafana_dashboard": "1"}


def monitoring_objects(release: Name) -> list[dict[str, Any]]:
    """Return a PrometheusRule and a ConfigMap with the dashboard."""
    rules = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": claim(release, "alerts"), "labels": shared_labels(release, "alerts")},
        "spec": rule_groups(),
    }
    made = config_map(
        release, "dashboard", {"gaudi-launch.json": json.dumps(dashboard(), indent=1) + "\n"}
    )
    labels = {**made["metadata"]["labels"], **_DASHBOARD_LABEL}
    return [rules, {**made, "metadata": {**made["metadata"], "labels": labels}}]
