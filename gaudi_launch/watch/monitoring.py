"""Files for Prometheus and Grafana: alert rules, dashboard, scrape config."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message
from gaudi_launch.render.rendered import Rendered
from gaudi_launch.render.yaml_text import documents, dump
from gaudi_launch.watch.alerts import rule_groups
from gaudi_launch.watch.dashboard import dashboard

RULES = "gaudi-launch-rules.yml"
DASHBOARD = "gaudi-launch-dashboard.json"
SCRAPE = "prometheus.yml"
_TARGET = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")


def monitoring_files(targets: Sequence[str]) -> Rendered:
    """Return the files for these exporters (``host:port``).

    Raises LaunchError (USAGE).
    """
    for target in targets:
        if not _TARGET.fullmatch(target):
            raise LaunchError("monitoring.target", ExitCode.USAGE, found=target)
    made = "Made by gaudi-launch render monitoring."
    scrape = {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [RULES],
        "scrape_configs": [
            {"job_name": "gaudi-launch", "static_configs": [{"targets": list(targets)}]}
        ],
    }
    files = {
        RULES: documents([dump(rule_groups())], [made]),
        DASHBOARD: json.dumps(dashboard(), indent=2) + "\n",
        SCRAPE: documents(
            [dump(scrape)], [f"{made} Each target runs: gaudi-launch exporter -u ADDRESS"]
        ),
    }
    return Rendered(
        files, notes=(message("monitoring.exporter"), message("monitoring.grafana", file=DASHBOARD))
    )
