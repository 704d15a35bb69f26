"""Files for Prometheus and Grafana: alert rules, dashboard, scrape config."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.base.yaml_reader import parse_yaml
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.yaml_text import documents, dump

RULES = "gaudi-launch-rules.yml"
DASHBOARD = "gaudi-launch-dashboard.json"
SCRAPE = "prometheus.yml"
_TARGET = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")
_FOLDER = Path(__file__).parent


def rule_groups() -> dict[str, Any]:
    """Return the document of a Prometheus rule file, over the exporter's own metrics."""
    found: dict[str, Any] = parse_yaml((_FOLDER / "alerts.yaml").read_bytes())
    return found


def dashboard() -> dict[str, Any]:
    """Return the dashboard's document, to import into Grafana.

    Format: Grafana's dashboard JSON model, schema version 39 (docs: Grafana, JSON model).
    """
    found: dict[str, Any] = read_json(_FOLDER / "dashboard.json")
    return found


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
