"""Every command of both READMEs is run, or at least parsed, and both say the same ones."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.host.simulated import write_tree
from tests.cli.test_serve import write_model
from tests.services.conftest import TRIVIAL

TOP = Path(__file__).parents[1]
FENCE = re.compile(r"```bash\n(.*?)```", re.DOTALL)


def commands(name: str) -> list[str]:
    text = (TOP / name).read_text(encoding="utf-8")
    return [line for block in FENCE.findall(text) for line in block.strip().splitlines()]


COMMANDS = commands("README.md")
# CI runs the tests by the second; the first makes its own environment and ends in the e2e tests' own job
BY_OTHERS = {
    "bash scripts/quickstart.sh",
    "bash scripts/test.sh",
    "pip install .",
    # tests/e2e/test_services.py
    "gaudi-launch serve -w demo --detach --name demo",
    # tests/e2e/test_ray_serve.py
    "gaudi-launch serve -w demo --engine ray-serve",
    "gaudi-launch ray status",
}
# what these need stands on a Gaudi server, or they change the machine: here a machine in a folder is theirs
ENDS = {
    "gaudi-launch doctor": {0},
    "gaudi-launch doctor --fix": {0},
    "gaudi-launch serve": {5},
    # no engine here: told before anything is fetched
    "gaudi-launch serve -w deepseek-ai/DeepSeek-R1-0528 -n 8 -q --trust-remote-code": {3},
    "gaudi-launch calibrate": {3},
}


def test_both_readmes_show_the_same_commands() -> None:
    assert commands("README_zh.md") == COMMANDS


def test_both_readmes_have_the_same_parts() -> None:
    counts = [
        {mark: (TOP / name).read_text(encoding="utf-8").count(mark) for mark in ("\n## ", "\n|", "```")}
        for name in ("README.md", "README_zh.md")
    ]
    assert counts[0] == counts[1]


def test_every_command_of_the_program_is_in_the_table() -> None:
    from gaudi_launch.cli.app import COMMANDS as known

    for name in ("README.md", "README_zh.md"):
        text = (TOP / name).read_text(encoding="utf-8")
        assert [command for command in known if f"`{command}`" not in text] == []


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder to stand in, with a log to explain, and a known-good machine."""
    folder = tmp_path_factory.mktemp("readme")
    machine = folder / "machine"
    write_tree("hls2", machine)
    (folder / "engine.log").write_text("OSError: [Errno 98] Address already in use\n")
    python = folder / "engine-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {TRIVIAL} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    write_model(folder / "Small")
    environment = {
        **os.environ,
        "GAUDI_LAUNCH_ROOT": str(machine),
        "PATH": f"{machine / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        **{f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("STATE", "CACHE", "DATA", "CONFIG")},
        "LC_ALL": "C.UTF-8",
    }
    # the service that the section on services asks for
    words = ("-w", str(folder / "Small"), "--python", str(python), "--no-doctor", "--detach", "--name", "demo")
    # on a machine of its own, so that it holds no card that another command wants
    write_tree("hls2", folder / "other")
    call({**environment, "GAUDI_LAUNCH_ROOT": str(folder / "other")}, folder, "serve", *words)
    yield folder, environment
    call(environment, folder, "stop", "--all", "--drain", "0")
    call(environment, folder, "stop", "--orphans", "--yes")


def call(environment: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gaudi_launch", *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(TOP)},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in BY_OTHERS])
def test_each_command(command: str, workplace: tuple[Path, dict[str, str]]) -> None:
    folder, environment = workplace
    words = shlex.split(command)
    assert words[0] == "gaudi-launch"
    done = call(environment, folder, *words[1:])
    expected = ENDS.get(command, ENDS.get(" ".join(words[:2]), {0}))
    assert done.returncode in expected, done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.e2e
def test_the_first_command_ends_in_an_answer(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "scripts/quickstart.sh"], cwd=TOP, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "The capital of France is Paris." in done.stdout
