"""Files for Prometheus and Grafana: every alert fires under its fault, every query has a metric.

promtool's own unit tests prove the alerts.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.render.monitoring import dashboard, monitoring_files, rule_groups
from gaudi_launch.extensions.watch.exporter.export import METRICS, PREFIX
from tests.support.cli import golden, output, reading
from tests.support.refusals import failing

# Prometheus adds them to the name of a metric
_ENDINGS = {"gauge": ("",), "counter": ("_total",), "summary": ("_sum", "_count")}
SERIES = {
    name: {f"{PREFIX}{name}{ending}" for ending in _ENDINGS[row["kind"]]}
    for name, row in METRICS.items()
}
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)"
)
_NAME = re.compile(r"gaudi_launch_\w+")

# alert -> (series under the fault, series without it); one sample a minute for half an hour
HOST = 'instance="h:9640"'
FAULTS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "GaudiLaunchServiceFailed": (
        {'gaudi_launch_service_phase{service="s",phase="lost"}': "1x30"},
        {'gaudi_launch_service_phase{service="s",phase="stopped"}': "1x30"},
    ),
    "GaudiLaunchExporterSilent": (
        {f'up{{{HOST},job="gaudi-launch"}}': "1x10 0x20"},
        {f'up{{{HOST},job="gaudi-launch"}}': "0x20 1x3 0x3"},
    ),
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
    "GaudiLaunchFirstTokensLate": (
        {
            'gaudi_launch_service_ttft_seconds_sum{service="s"}': "0+120x30",
            'gaudi_launch_service_ttft_seconds_count{service="s"}': "0+10x30",
        },
        # without requests there is no mean
        {
            'gaudi_launch_service_ttft_seconds_sum{service="s"}': "0+120x10 1200x20",
            'gaudi_launch_service_ttft_seconds_count{service="s"}': "0+10x10 100x20",
        },
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


ALERTS = rule_groups()["groups"][0]["rules"]


def test_every_alert_has_a_fault_and_uses_only_metrics_of_the_exporter() -> None:
    assert {alert["alert"] for alert in ALERTS} == FAULTS.keys()
    used = {name for alert in ALERTS for name in _NAME.findall(alert["expr"])}
    assert used <= set().union(*SERIES.values())


def test_a_broken_card_is_lost_too() -> None:
    (lost,) = [alert for alert in ALERTS if alert["alert"] == "GaudiLaunchCardLost"]
    assert "gaudi_launch_card_operational == 0" in lost["expr"]


def promtool(folder: Path, *words: str) -> tuple[int, str]:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *words], cwd=folder, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def unit_test(alert: dict[str, Any], series: dict[str, str], *, fires: bool) -> dict[str, object]:
    labels = re.search(r"\{(.*)\}", next(iter(series)))
    assert labels is not None
    expected = dict(re.findall(r'(\w+)="([^"]*)"', labels[1]))
    found = {
        "exp_labels": {**expected, **alert["labels"]},
        "exp_annotations": {
            name: rendered(template, expected) for name, template in alert["annotations"].items()
        },
    }
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {
                "eval_time": "28m",
                "alertname": alert["alert"],
                "exp_alerts": [found] if fires else [],
            }
        ],
    }


def rendered(template: str, labels: dict[str, str]) -> str:
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: labels.get(match[1], ""), template)
    return text.replace("{{ $value }}", "2")


@needs_promtool
def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule_groups()))
    code, said = promtool(tmp_path, "check", "rules", "rules.yml")
    assert (code, f"{len(ALERTS)} rules found" in said) == (0, True), said


@needs_promtool
def test_each_alert_fires_under_its_fault_and_not_without_it(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule_groups()))
    tests = []
    for alert in ALERTS:
        fault, none = FAULTS[alert["alert"]]
        tests += [unit_test(alert, fault, fires=True), unit_test(alert, none, fires=False)]
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document))
    code, said = promtool(tmp_path, "test", "rules", "tests.yml")
    assert code == 0, said


def test_every_query_is_of_the_exporter() -> None:
    used = set(_NAME.findall(json.dumps(dashboard())))
    assert used <= set().union(*SERIES.values())
    # what only changes with a launch is not drawn
    drawn = [name for name, series in SERIES.items() if series & used]
    assert {
        "service_kv_use_ratio",
        "card_power_watts",
        "disk_free_bytes",
        "node_cpu_use_ratio",
    } <= set(drawn)


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    made = dashboard()["panels"]
    assert len({panel["id"] for panel in made}) == len(made)
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
    assert found == [("Instance", "query", True, ".+", uid), ("Service", "query", True, ".+", uid)]
    for panel in made["panels"]:
        assert panel["title"] and panel["description"].endswith(".")
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {uid}
        for target in panel["targets"]:
            assert 'instance=~"$instance"' in target["expr"]
            # a range is Grafana's, which follows the scrape interval
            assert set(re.findall(r"\[(.*?)\]", target["expr"])) <= {"$__rate_interval"}


def test_three_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = output(
        capsys, "render", "monitoring", "--to", f"{tmp_path}/m", "--target", "h1:9640,[::1]:9640"
    )
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        "gaudi-launch-dashboard.json",
        "gaudi-launch-rules.yml",
        "prometheus.yml",
    ]
    assert (
        json.loads((tmp_path / "m" / "gaudi-launch-dashboard.json").read_text())["uid"]
        == "gaudi-launch"
    )
    program = shutil.which("promtool")
    if program is not None:
        done = subprocess.run(
            [program, "check", "config", "prometheus.yml"],
            cwd=tmp_path / "m",
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = reading(capsys, "render", "monitoring")
    texts = {file["name"]: file["text"] for file in found["files"]}
    assert list(texts) == [
        "gaudi-launch-rules.yml",
        "gaudi-launch-dashboard.json",
        "prometheus.yml",
    ]
    assert "127.0.0.1:9640" in texts["prometheus.yml"]


def test_the_texts_of_the_files() -> None:
    """Rules and dashboards that a user has imported change only on purpose."""
    files = monitoring_files(["h1:9640", "[::1]:9640"]).files
    golden("monitoring.txt", "".join(f"### {name}\n{content}" for name, content in files.items()))


@pytest.mark.parametrize("target", ["", "h", "h:x", "http://h:1", "h:1 b:2", "h:1\nx"])
def test_a_target_is_a_host_and_a_port(target: str) -> None:
    with failing("monitoring.target", ExitCode.USAGE) as raised:
        monitoring_files([target])
    assert raised.value.text.values == {"found": target}
