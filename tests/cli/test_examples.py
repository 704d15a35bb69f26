"""Each help ends with two or three examples, and every one of them runs.

They run in this process, in a folder with what they name: models, logs, a trace, recorded services
and caches, on a simulated machine. What would start an engine ends where the engine would start.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import typer

from gaudi_launch.app import prepare
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.cli.examples import _EXAMPLES, examples_of
from gaudi_launch.cli.main import run
from gaudi_launch.host.simulated import write_tree
from gaudi_launch.locks import try_ofd
from tests.support.capacity import few_requests
from tests.support.help_texts import all_commands
from tests.support.local_hub import Hub
from tests.support.machines import write_stub
from tests.support.model_files import FILES
from tests.support.places import TOP
from tests.support.serve import write_model
from tests.support.stand_in_server import serving
from tests.support.waiting import GENEROUS

__all__ = ["few_requests"]

PATHS = [found.path for found in all_commands()]
LINES = sorted({example.command for examples in _EXAMPLES.values() for example in examples})

# what is not on the machine of these tests: the documented exit code says so
NO_MACHINE = {
    # no engine is installed, so its calibration scripts are missing
    "gaudi-launch calibrate": 3,
    # no cluster answers: tests/cli/commands/test_kube.py has one
    "gaudi-launch kube": 3,
    # the two hosts of the inventory do not answer
    "gaudi-launch cluster plan deepseek-ai/DeepSeek-R1 --inventory": 3,
    "gaudi-launch cluster up deepseek-ai/DeepSeek-R1 --inventory": 3,
    # it says so of the hosts of the cluster, which do not answer
    "gaudi-launch cluster status": 1,
    # no Ray runs here: tests/e2e/test_ray_serve.py has one
    "gaudi-launch ray status": 2,
    # the stand-in server's run names no model and engine: tests/app/test_learn.py has one that does
    "gaudi-launch learn run.json": 2,
    # no search was begun: tests/app/test_tune.py has one
    "gaudi-launch tune Qwen/Qwen3-8B --minutes 60 --concurrency 64 -i 1024 -o 256 --resume": 2,
    # the gateway's program is not installed: tests/app/test_stack.py has it
    "gaudi-launch stack up": 3,
    # no stack runs; the gateway is not installed: tests/app/test_stack.py has both
    "gaudi-launch stack logs": 2,
    "gaudi-launch stack restart": 2,
    "gaudi-launch stack apply": 3,
    # it finds failures
    "gaudi-launch doctor --machine simulated:hls2+bad-tuning": 3,
}


def test_each_help_ends_with_two_or_three_examples() -> None:
    assert {
        path: len(examples_of(path)) for path in PATHS if len(examples_of(path)) not in (2, 3)
    } == {}
    assert sorted(_EXAMPLES.keys() - set(PATHS)) == []


def test_an_example_is_one_of_its_command() -> None:
    wrong = [
        (path, example.command)
        for path, examples in _EXAMPLES.items()
        for example in examples
        if f"gaudi-launch {path}".strip() not in example.command
    ]
    assert wrong == []


def test_an_example_fits_a_terminal_of_110_columns() -> None:
    assert [line for line in LINES if len(line) > 108] == []


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(gap=0.0005) as (url, _):
        yield url


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine")
    write_tree("hls2", folder)
    return folder


@pytest.fixture
def place(
    tmp_path: Path, machine: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder to stand in, with all that the examples name."""
    recorded = interface()
    recorded.lay_state(tmp_path)
    for name, value in recorded.surroundings(tmp_path).items():
        monkeypatch.setenv(name, f"{machine / 'bin'}:{value}" if name == "PATH" else value)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(machine))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    write_stub(tmp_path / "bin" / "ssh", {}, otherwise="sys.exit(255)")
    clusters = tmp_path / "state/gaudi-launch/clusters"
    shutil.copytree(clusters / "old", clusters / "cluster")
    (tmp_path / "models").mkdir()
    write_model(tmp_path / "models" / "Qwen3-8B")
    for name, content in FILES.items():
        path = tmp_path / "models" / "DeepSeek-R1" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "old-recipes").mkdir()
    (tmp_path / "old-recipes" / "1.recipe").write_bytes(b"x")
    (tmp_path / "engine.log").write_text("OSError: [Errno 98] Address already in use\n")
    (tmp_path / "trace.csv").write_text("timestamp,input_tokens,output_tokens\n0,40,8\n0.05,60,4\n")
    (tmp_path / "hosts.yaml").write_text(recorded.INVENTORY)
    with a_service(tmp_path / "state/gaudi-launch/services/demo", server):
        yield tmp_path


def interface() -> ModuleType:
    """Return scripts/interface.py, which lays out recorded services and caches."""
    spec = importlib.util.spec_from_file_location("interface", TOP / "scripts" / "interface.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def a_service(folder: Path, url: str) -> Iterator[None]:
    """A service that answers, with its log."""
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(
        json.dumps({"name": "demo", "url": url, "phase": "ready", "served": "m"})
    )
    for log in ("engine.log", "launcher.log"):
        (folder / log).write_text("".join(f"line {number}\n" for number in range(40)))
    with (folder / "lock").open("w+b") as lock:
        assert try_ofd(lock.fileno())
        yield


def planned(options: LaunchOptions, *_: Any) -> None:
    """Plan as serve does, and end where it would start the engine."""
    prepare.plan(replace(options, machine=options.machine or "simulated:hls2"))
    raise typer.Exit()


def prepared(line: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make what only this command needs, and keep it from starting or ending anything."""
    monkeypatch.setattr("gaudi_launch.app.serve.start", planned)
    # tune starts services by this module, which has the function under its own name
    monkeypatch.setattr("gaudi_launch.app.service.start", planned)
    monkeypatch.setattr("gaudi_launch.app.stop.restart", lambda name, *_: None)
    # gradio takes seconds to import: tests/bench/test_webui.py has the page
    page = SimpleNamespace(serve=lambda *_: None)
    monkeypatch.setattr("gaudi_launch.bench.webui", page, raising=False)
    packs = "gaudi_launch.app.offline_pack"
    monkeypatch.setattr(f"{packs}._collect_engine", lambda order, reporter: None)
    monkeypatch.setattr(f"{packs}._collect_launcher", lambda order, reporter: None)
    monkeypatch.setattr("gaudi_launch.app.offline._install_engine", lambda *_: "python")
    if line == "gaudi-launch why":
        failed = place / "state/gaudi-launch/services/failed"
        failed.mkdir()
        facts = {
            "schema": 1,
            "name": "failed",
            "phase": "failed",
            "outcome": "died",
            "status": 1,
            "ended": 1.0,
        }
        (failed / "state.json").write_text(json.dumps(facts))
        shutil.copy(place / "engine.log", failed / "engine.log")
    if " stop " in line or line.endswith("logs demo -f"):
        # a service that has ended: one that runs would be this test's own process
        state = place / "state/gaudi-launch/services"
        (state / "old").rename(state / "ended")
        (state / "demo").rename(place / "answering")
        (state / "ended").rename(state / "demo")
    made = {
        "offline show": "offline pack --engine cpu --model demo -o demo.tar",
        "offline install": "offline pack --engine cpu --model demo -o demo.tar",
        "stack plan": "stack init Qwen/Qwen3-8B --machine simulated:hls2",
        "stack up": "stack init Qwen/Qwen3-8B --machine simulated:hls2",
        "stack down": "stack init Qwen/Qwen3-8B --machine simulated:hls2",
        "stack apply": "stack init Qwen/Qwen3-8B --machine simulated:hls2",
        "--stack stack.yaml": "stack init Qwen/Qwen3-8B --machine simulated:hls2",
        "ray check": "ray config Qwen/Qwen3-8B -n 1 --machine simulated:hls2 --out serve.yaml",
        "hls2.json,": "snapshot hls2.json --machine simulated:hls2",
        "cache import": "cache export ffd155d6 key.tar.zst -c recipes",
        "learn run.json": "bench demo --requests 4 -i 16 -o 4 --save run.json",
        "bench compare": "bench demo --requests 4 -i 16 -o 4 --save before.json",
        "mine.yaml": "",
    }
    for part, words in made.items():
        if part in line and words:
            assert run(shlex.split(words)) == 0
    if "bench compare" in line:
        assert (
            run(["bench", "demo", "--requests", "4", "-i", "16", "-o", "4", "--save", "after.json"])
            == 0
        )
    if "mine.yaml" in line:
        (place / "mine.yaml").write_text((TOP / "profiles/models/qwen3-8b.yaml").read_text())


def split(line: str) -> tuple[list[list[str]], str]:
    """Return the commands of a line without the program's name, and what a pipe gives them."""
    piped = ""
    if "|" in line:
        echo, line = line.split("|")
        piped = shlex.split(echo)[1]
    return [shlex.split(part.strip())[1:] for part in line.split("&&")], piped


def ran(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return the exit code and all output of a command."""
    if words[0] != "inspect":
        return run(words), "".join(capsys.readouterr())
    # the hub's library reads its address when it is imported
    command = [sys.executable, "-m", "gaudi_launch", *words]
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=GENEROUS
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.usefixtures("few_requests")
@pytest.mark.parametrize("line", LINES)
def test_each_example_runs(
    line: str,
    place: Path,
    server: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepared(line, place, monkeypatch)
    commands, piped = split(line.replace("http://10.0.0.5:8000", server))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((piped or "n\n").encode())))
    repositories = {"Qwen/Qwen3-8B": FILES}
    with Hub(FILES, repo="Qwen/Qwen3-8B", others=repositories) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("MODELSCOPE_DOMAIN", hub.url.removeprefix("http://"))
        for words in commands:
            code, said = ran(words, capsys)
            expected = next((code for part, code in NO_MACHINE.items() if line.startswith(part)), 0)
            assert code == expected, said
            assert "Traceback" not in said
