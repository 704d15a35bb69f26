"""Every alert fires under its fault and is silent without it: promtool's own unit tests."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from gaudi_launch.watch.alerts import Alert, alerts, rule_groups
from gaudi_launch.watch.metric_list import SERIES

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)"
)
_NAME = re.compile(r"gaudi_launch_\w+")

# alert -> (series under the fault, series without it); one sample a minute for half an hour
HOST = 'instance="h:9640"'
FAULTS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "GaudiLaunchServiceRestarted": (
        {'gaudi_launch_service_restarts_total{service="s"}': "0x20 1x10"},
        {'gaudi_launch_service_restarts_total{service="s"}': "1x30"},
    ),
    "GaudiLaunchCompiledAtRunTime": (
        {'gaudi_launch_service_run_time_compiles_total{service="s"}': "3x20 5x10"},
        {'gaudi_launch_service_run_time_compiles_total{service="s"}': "3x30"},
    ),
    "GaudiLaunchKvCacheFull": (
        {'gaudi_launch_service_kv_use_ratio{service="s"}': "0.99x22 0.9 0.99x7"},
        {'gaudi_launch_service_kv_use_ratio{service="s"}': "0.97x20 0.9x3 0.97x3"},
    ),
    "GaudiLaunchPreemptions": (
        {'gaudi_launch_service_preemptions_total{service="s"}': "0+60x30"},
        {'gaudi_launch_service_preemptions_total{service="s"}': "0+3x30"},
    ),
    "GaudiLaunchLinkDown": (
        {'gaudi_launch_card_ports_down{module="3"}': "0x20 2x10"},
        {'gaudi_launch_card_ports_down{module="3"}': "0x29 2x1"},
    ),
    "GaudiLaunchThrottled": (
        {'gaudi_launch_card_throttled{module="3"}': "0 1 1x28"},
        {'gaudi_launch_card_throttled{module="3"}': "0x26 1x2"},
    ),
    "GaudiLaunchCardLost": (
        {
            'gaudi_launch_card_present{module="3"}': "1x20 0x10",
            'gaudi_launch_card_operational{module="3"}': "1x30",
        },
        {
            'gaudi_launch_card_present{module="3"}': "1x30",
            'gaudi_launch_card_operational{module="3"}': "1x30",
        },
    ),
    "GaudiLaunchHlSmiSilent": (
        {f"gaudi_launch_hl_smi_answers{{{HOST}}}": "1x10 0x20"},
        {f"gaudi_launch_hl_smi_answers{{{HOST}}}": "0x20 1x3 0x3"},
    ),
    "GaudiLaunchRecipeDiskNearlyFull": (
        {
            f'gaudi_launch_disk_free_bytes{{{HOST},use="recipes"}}': "5x30",
            f'gaudi_launch_disk_size_bytes{{{HOST},use="recipes"}}': "100x30",
        },
        {
            f'gaudi_launch_disk_free_bytes{{{HOST},use="state"}}': "5x30",
            f'gaudi_launch_disk_size_bytes{{{HOST},use="state"}}': "100x30",
            f'gaudi_launch_disk_free_bytes{{{HOST},use="recipes"}}': "20x30",
            f'gaudi_launch_disk_size_bytes{{{HOST},use="recipes"}}': "100x30",
        },
    ),
}


def test_every_alert_has_a_fault_and_uses_only_metrics_of_the_exporter() -> None:
    assert {alert.name for alert in alerts()} == FAULTS.keys()
    used = {name for alert in alerts() for name in _NAME.findall(alert.expression)}
    assert used <= SERIES


def test_a_broken_card_is_lost_too() -> None:
    (lost,) = [alert for alert in alerts() if alert.name == "GaudiLaunchCardLost"]
    assert "gaudi_launch_card_operational == 0" in lost.expression


def promtool(folder: Path, *words: str) -> tuple[int, str]:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *words], cwd=folder, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def unit_test(alert: Alert, series: dict[str, str], *, fires: bool) -> dict[str, object]:
    labels = re.search(r"\{(.*)\}", next(iter(series)))
    assert labels is not None
    expected = dict(re.findall(r'(\w+)="([^"]*)"', labels[1]))
    found = {
        "exp_labels": {**expected, "severity": alert.severity},
        "exp_annotations": {
            "summary": rendered(alert.summary, expected),
            "description": rendered(alert.description, expected),
        },
    }
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": "28m", "alertname": alert.name, "exp_alerts": [found] if fires else []},
        ],
    }


def rendered(template: str, labels: dict[str, str]) -> str:
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: labels.get(match[1], ""), template)
    return text.replace("{{ $value }}", "2")


@needs_promtool
def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule_groups()))
    code, said = promtool(tmp_path, "check", "rules", "rules.yml")
    assert (code, f"{len(alerts())} rules found" in said) == (0, True), said


@needs_promtool
def test_each_alert_fires_under_its_fault_and_not_without_it(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule_groups()))
    tests = []
    for alert in alerts():
        fault, none = FAULTS[alert.name]
        tests += [unit_test(alert, fault, fires=True), unit_test(alert, none, fires=False)]
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document))
    code, said = promtool(tmp_path, "test", "rules", "tests.yml")
    assert code == 0, said
