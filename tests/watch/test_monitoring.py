"""``render monitoring``: files for Prometheus and Grafana, checked by Prometheus' own tool."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gaudi_launch.errors import LaunchError
from gaudi_launch.watch.monitoring import monitoring_files
from tests.support.cli import golden, output, reading


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
    with pytest.raises(LaunchError) as raised:
        monitoring_files([target])
    assert (raised.value.id, int(raised.value.exit_code)) == ("monitoring.target", 2)
    assert raised.value.text.values == {"found": target}
