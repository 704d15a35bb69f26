"""Prometheus rules from the exporter's own metric list. Pure.

Thresholds are this project's choice; each is stated in the alert's description.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gaudi_launch.watch.metric_list import METRICS

_GROUP = "gaudi-launch"


@dataclass(frozen=True)
class Alert:
    """One alert: its PromQL expression, and for how long it has to be true."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    description: str


def _series(name: str) -> str:
    """Return the name of a gauge's or counter's series.

    Raises KeyError for an unknown metric.
    """
    return METRICS[name].series[0]


def alerts() -> tuple[Alert, ...]:
    """Return every alert, the services' first."""
    restarts, compiles = _series("service_restarts"), _series("service_run_time_compiles")
    preemptions, kv = _series("service_preemptions"), _series("service_kv_use_ratio")
    present, operational = _series("card_present"), _series("card_operational")
    free, size = _series("disk_free_bytes"), _series("disk_size_bytes")
    return (
        Alert(
            "GaudiLaunchServiceRestarted",
            f"increase({restarts}[15m]) > 0",
            "0m",
            "warning",
            "Service {{ $labels.service }} was restarted",
            (
                "Its engine failed within the last 15 minutes. Run: gaudi-launch why {{ "
                "$labels.service }}"
            ),
        ),
        Alert(
            "GaudiLaunchCompiledAtRunTime",
            f"increase({compiles}[15m]) > 0",
            "0m",
            "warning",
            "Service {{ $labels.service }} compiled a graph at run time",
            "A request had a shape that no bucket covers; it and all that ran with it waited. "
            "Run: gaudi-launch warmup MODEL --list",
        ),
        Alert(
            "GaudiLaunchKvCacheFull",
            # a full cache dips whenever a request ends
            f"avg_over_time({kv}[2m]) > 0.95",
            "5m",
            "warning",
            "The KV cache of {{ $labels.service }} is full",
            "On average more than 95% was used for 5 minutes: requests wait or are preempted.",
        ),
        Alert(
            "GaudiLaunchPreemptions",
            f"rate({preemptions}[5m]) > 0.1",
            "5m",
            "warning",
            "Service {{ $labels.service }} preempts requests",
            "More than one request in ten seconds lost its KV cache for 5 minutes and is "
            "computed again. Run: gaudi-launch status {{ $labels.service }} --history 1h",
        ),
        Alert(
            "GaudiLaunchLinkDown",
            f"{_series('card_ports_down')} > 0",
            "2m",
            "critical",
            "Card {{ $labels.module }} has {{ $value }} ports without a link",
            (
                "A service over several cards hangs or fails. Run: gaudi-launch doctor --only "
                "network,cards"
            ),
        ),
        Alert(
            "GaudiLaunchThrottled",
            f"max_over_time({_series('card_throttled')}[2m]) > 0",
            "5m",
            "warning",
            "Card {{ $labels.module }} is throttled",
            "Its throttle counters grew for 5 minutes: it is too hot or at its power limit.",
        ),
        Alert(
            "GaudiLaunchCardLost",
            f"{present} == 0 or {operational} == 0",
            "1m",
            "critical",
            "Card {{ $labels.module }} is lost",
            (
                "hl-smi lists it no longer, or its status is not Operational. Run: gaudi-launch "
                "doctor --only cards"
            ),
        ),
        Alert(
            "GaudiLaunchHlSmiSilent",
            f"{_series('hl_smi_answers')} == 0",
            "5m",
            "warning",
            "hl-smi does not answer on {{ $labels.instance }}",
            (
                "The cards' values have been unknown for 5 minutes. Run: gaudi-launch doctor "
                "--only driver"
            ),
        ),
        Alert(
            "GaudiLaunchRecipeDiskNearlyFull",
            f'{free}{{use="recipes"}} / {size}{{use="recipes"}} < 0.1',
            "10m",
            "warning",
            "The disk of the compiled graphs is nearly full on {{ $labels.instance }}",
            (
                "Less than 10% is free: a full disk loses compiled graphs. Run: gaudi-launch cache "
                "prune"
            ),
        ),
    )


def rule_groups() -> dict[str, Any]:
    """Return the document of a Prometheus rule file."""
    return {
        "groups": [
            {
                "name": _GROUP,
                "rules": [
                    {
                        "alert": alert.name,
                        "expr": alert.expression,
                        "for": alert.lasts,
                        "labels": {"severity": alert.severity},
                        "annotations": {"summary": alert.summary, "description": alert.description},
                    }
                    for alert in alerts()
                ],
            }
        ]
    }
