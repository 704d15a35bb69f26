"""What a release consists of: one version, the pages and profiles in the wheel, a real picture."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml

from gaudi_launch.core.base.version import VERSION
from tests.support.places import TOP

PROJECT = (TOP / "pyproject.toml").read_text(encoding="utf-8")


def test_the_version_is_in_one_place() -> None:
    assert 'dynamic = ["version"]' in PROJECT
    assert '[tool.hatch.version]\npath = "gaudi_launch/core/base/version.py"' in PROJECT
    assert not re.search(r'(?m)^version = "', PROJECT)
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_launch", "--version"],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"gaudi-launch {VERSION}\n"


def test_the_wheel_has_the_pages_and_the_profiles() -> None:
    part = PROJECT.split("[tool.hatch.build.targets.wheel.force-include]\n")[1].split("\n\n")[0]
    included = dict(line.split(" = ") for line in part.strip().splitlines())
    assert included == {"profiles": '"gaudi_launch/_profiles"', "docs": '"gaudi_launch/_docs"'}


@pytest.mark.parametrize(
    ("name", "shown_next"),
    [
        ("terminal.svg", "next: gaudi-launch serve"),
        ("terminal_zh.svg", "下一步：gaudi-launch serve"),
    ],
)
def test_the_picture_is_of_the_command_that_its_script_runs(name: str, shown_next: str) -> None:
    script = (TOP / "scripts" / "terminal_picture.py").read_text(encoding="utf-8")
    (command,) = re.findall(r'"(gaudi-launch plan .*)"', script)
    picture = (TOP / "docs" / name).read_text(encoding="utf-8")
    shown = re.sub(r"<[^>]+>", "", picture).replace("&#160;", " ")
    assert command in shown
    assert shown_next in shown
    # it loads nothing
    assert "url(http" not in picture and "@font-face" not in picture


def test_the_workflow_calls_the_script_that_everyone_runs() -> None:
    workflow = yaml.safe_load((TOP / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    steps = [step.get("run") for step in workflow["jobs"]["run"]["steps"]]
    assert ".ci/run" in steps
    assert (TOP / ".ci" / "run").stat().st_mode & 0o111


def test_every_issue_template_requests_the_bundle() -> None:
    folder = TOP / ".github" / "ISSUE_TEMPLATE"
    for path in sorted(folder.glob("*.yml")):
        if path.name == "config.yml":
            continue
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= form.keys()
        assert "gaudi-launch doctor --bundle" in path.read_text(encoding="utf-8")
