"""A Grafana dashboard from the exporter's own metric list. Pure.

Format: Grafana's dashboard JSON model, schema version 39 (docs: Grafana, JSON model).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gaudi_launch.watch.metric_list import METRICS

UID = "gaudi-launch"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 12
_HEIGHT = 8


@dataclass(frozen=True)
class DashboardPanel:
    """One graph: its queries, each with a legend, and the unit in Grafana's terms."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def _gauge(name: str) -> str:
    metric = METRICS[name]
    labels = ",".join([_HOSTS, *([_SERVICES] if "service" in metric.labels else [])])
    return f"{metric.series[0]}{{{labels}}}"


def _rate(name: str) -> str:
    return f"rate({_gauge(name)}[$__rate_interval])"


def _mean(name: str) -> str:
    total, count = METRICS[name].series
    labels = f"{{{_HOSTS},{_SERVICES}}}"
    return f"rate({total}{labels}[$__rate_interval]) / rate({count}{labels}[$__rate_interval])"


_HOSTS = 'instance=~"$instance"'
_SERVICES = 'service=~"$service"'
_BY_SERVICE = "{{service}}"
_BY_CARD = "{{instance}} {{module}}"


def panels() -> tuple[DashboardPanel, ...]:
    """Return the panels in their order, two in a row."""
    return (
        DashboardPanel(
            "Requests",
            "Requests that each engine works on, and requests in its queue.",
            "short",
            (
                (_gauge("service_requests_running"), "{{service}} running"),
                (_gauge("service_requests_waiting"), "{{service}} waiting"),
            ),
        ),
        DashboardPanel(
            "Generated tokens per second",
            "Tokens that each service generates per second.",
            "short",
            ((_rate("service_generated_tokens"), _BY_SERVICE),),
        ),
        DashboardPanel(
            "TTFT",
            "Mean time to first token.",
            "s",
            ((_mean("service_ttft_seconds"), _BY_SERVICE),),
        ),
        DashboardPanel(
            "TPOT",
            "Mean time per output token after the first.",
            "s",
            ((_mean("service_tpot_seconds"), _BY_SERVICE),),
        ),
        DashboardPanel(
            "KV cache",
            "Used part of the KV cache. Near 100%, requests wait or are preempted.",
            "percentunit",
            ((_gauge("service_kv_use_ratio"), _BY_SERVICE),),
        ),
        DashboardPanel(
            "Preemptions and run-time compiles per second",
            "Requests that lost their KV cache and are computed again, and graphs that were "
            "compiled for a request. Both should be 0.",
            "short",
            (
                (_rate("service_preemptions"), "{{service}} preemptions"),
                (_rate("service_run_time_compiles"), "{{service}} compiles"),
            ),
        ),
        DashboardPanel(
            "Utilisation of cards",
            "Utilisation as hl-smi reports it.",
            "percentunit",
            ((_gauge("card_utilization_ratio"), _BY_CARD),),
        ),
        DashboardPanel(
            "Memory of cards",
            "Memory in use on each card.",
            "bytes",
            ((_gauge("card_memory_used_bytes"), _BY_CARD),),
        ),
        DashboardPanel(
            "Power of cards",
            "Measured power of each card, and its limit.",
            "watt",
            (
                (_gauge("card_power_watts"), _BY_CARD),
                (_gauge("card_power_cap_watts"), _BY_CARD + " limit"),
            ),
        ),
        DashboardPanel(
            "Temperature of cards",
            "Temperature as hl-smi reports it.",
            "celsius",
            ((_gauge("card_temperature_celsius"), _BY_CARD),),
        ),
        DashboardPanel(
            "Faults of cards",
            "Ports without a link, 1 while throttled, and 1 while hl-smi does not list the card.",
            "short",
            (
                (_gauge("card_ports_down"), _BY_CARD + " ports down"),
                (_gauge("card_throttled"), _BY_CARD + " throttled"),
                (f"1 - {_gauge('card_present')}", _BY_CARD + " lost"),
            ),
        ),
        DashboardPanel(
            "Joules per generated token",
            "Measured energy of the cards of a service, divided by its generated tokens.",
            "joule",
            (
                (
                    f"{_rate('service_energy_joules')} / {_rate('service_generated_tokens')}",
                    _BY_SERVICE,
                ),
            ),
        ),
        DashboardPanel(
            "CPU use of NUMA nodes",
            "Used part of the CPUs of each NUMA node.",
            "percentunit",
            ((_gauge("node_cpu_use_ratio"), "{{instance}} {{node}}"),),
        ),
        DashboardPanel(
            "Free disk",
            "Free space of the file systems of recipes, models and state.",
            "bytes",
            ((_gauge("disk_free_bytes"), "{{instance}} {{use}}"),),
        ),
    )


def dashboard() -> dict[str, Any]:
    """Return the dashboard's document, to import into Grafana."""
    return {
        "uid": UID,
        "title": "gaudi-launch",
        "tags": ["gaudi-launch"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [_source(), _choice("instance", "cards_read"), _choice("service", "service_up")]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(panels())],
    }


def _source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }


def _choice(label: str, metric: str) -> dict[str, Any]:
    series = METRICS[metric].series[0]
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({series}, {label})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".+",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: DashboardPanel) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": {
            "x": number % 2 * _WIDTH,
            "y": number // 2 * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend,
            }
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }
