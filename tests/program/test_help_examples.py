"""Each help ends with two or three examples; they run, and so does each command of a message.

They run in this process, in a folder with what they name: models, logs, a trace, recorded services
and caches, on a simulated machine. What would start an engine ends where the engine would start.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from gaudi_launch.cli.help import examples
from gaudi_launch.cli.main import run
from gaudi_launch.core.base.locks import try_ofd
from gaudi_launch.core.base.messages import catalogue_files
from gaudi_launch.core.host.simulated import write_tree
from gaudi_launch.core.launch import route, serve, stop, todo
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.extensions.kubernetes.pods import chat_page
from gaudi_launch.extensions.offline import case, pack
from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED
from tests.support.doctor_cases import remedies_commands
from tests.support.help_texts import all_commands
from tests.support.local_hub import Hub
from tests.support.model_files import FILES
from tests.support.places import TOP
from tests.support.serve import write_model
from tests.support.stand_in_server import serving
from tests.support.waiting import GENEROUS

PATHS = [found.path for found in all_commands()]
LINES = sorted({line for lines in examples().values() for line in lines})
# a command to copy: in quotes, or after a colon up to the end of its sentence
QUOTED = re.compile(r"'(?:sudo )?(gaudi-launch [^']+)'")
AFTER_COLON = re.compile(
    r"(?:: |Run |by |with )(gaudi-launch [a-z][^;(\n]*?)(?=\.? *$|\. |[;(\n]|, or |\.?$)"
)
# what a message has in place of a value, by the words before it where they decide
VALUES = {
    "plan MODEL --save FILE": "plan Qwen/Qwen3-8B --save made.json",
    "bench NAME --plan FILE": "bench demo --plan saved.json --requests 4",
    "recommend MODEL --save DIR": "recommend Qwen/Qwen3-8B -n 1 -d bf16 -i 64 -o 64 --save plans",
    "tune DIR/": "tune plans/",
    "serve --plan {path}": "serve --plan saved.json",
    "stack ps {name}": "stack ps",
    "down {path}": "down stack.yaml",
    "snapshot FILE": "snapshot made.json",
    "FILE.tar.gz": "made.tar.gz",
    "--plot FILE.png": "",
    "compare A.json B.json": "compare before.json after.json",
    "compare {files}": "compare before.json after.json",
    "convert DIR OUT": "convert models/DeepSeek-R1 made",
    "--to DIR": "--to made Qwen/Qwen3-8B --machine simulated:hls2",
    "{first}": "cpu",
    "{how}": "",
    "{ids}": "cards",
    "{service}": "demo",
    "{page}": "stack.md",
    "{name}": "demo",
    "NAME": "demo",
    "{model}": "Qwen/Qwen3-8B",
    "{pull}": "pull Qwen/Qwen3-8B",
    "MODEL": "Qwen/Qwen3-8B",
    "{cards}": "1",
    "{engine}": "vllm-gaudi",
    "ENGINE": "cpu",
    "{program}": "docker",
    "{image}": "an/image:1",
    "IMAGE": "vault.habana.ai/gaudi-docker/1.22.1/ubuntu22.04/habanalabs/"
    "pytorch-installer-2.7.1:latest",
    "{python}": sys.executable,
    "PACK": "demo.tar",
    "ADDRESS": "127.0.0.1",
}


def shown() -> dict[str, str]:
    """Return the command lines of the messages and signatures, with values, and where they are."""
    found: dict[str, str] = {}
    for path in catalogue_files("en"):
        for id, said in json.loads(path.read_text(encoding="utf-8")).items():
            for line in (*QUOTED.findall(said), *AFTER_COLON.findall(QUOTED.sub("", said))):
                found.setdefault(line.strip(), id)
    text = (TOP / "profiles/signatures.yaml").read_text(encoding="utf-8")
    for line in re.findall(r"- '(gaudi-launch [^']+)'", text):
        found.setdefault(line, "signatures")
    text = (TOP / "gaudi_launch/core/render/alerts.yaml").read_text(encoding="utf-8")
    for line in re.findall(r"Run: (gaudi-launch [^\"{]+)\"", text):
        found.setdefault(line, "alerts")
    return {valued(line): id for line, id in found.items()}


def valued(line: str) -> str:
    """Return a line with values where a message has placeholders."""
    line = re.sub(r" \.\.\.?(?= |$)|(?<=--engine tgi)$", " MODEL", line)
    for part, value in VALUES.items():
        line = line.replace(part, value)
    if line.startswith("gaudi-launch exporter"):
        line += " --once"
    # what it would install: tests/commands/setup/test_command.py runs setup against stand-ins
    if line.startswith("gaudi-launch setup ") and "--rollback" not in line:
        line += " --dry-run"
    return line.strip()


SHOWN = {
    line: id
    for line, id in shown().items()
    if line not in LINES and line.split()[1] in {path.split()[0] for path in PATHS if path}
}
# other tests run these: with a cluster, hosts, an engine, HAProxy, or until it is stopped
BY_OTHERS = {
    "gaudi-launch profiles add-evidence*": "commands/profiles/test_evidence.py::"
    "test_a_changed_fact_is_found",
    "gaudi-launch top": "extensions/watch/top/test_screen.py::"
    "test_it_is_drawn_typed_at_and_left_as_it_was_found",
    "gaudi-launch cluster up": "e2e/test_cluster.py::test_two_hosts_up_a_worker_killed_down",
    "gaudi-launch cluster down": "e2e/test_cluster.py::test_two_hosts_up_a_worker_killed_down",
    "gaudi-launch cluster status*": "e2e/test_cluster.py::test_two_hosts_up_a_worker_killed_down",
    "gaudi-launch chat demo": "extensions/bench/test_chat.py::"
    "test_a_question_as_argument_is_answered_by_the_service_of_a_model",
    "gaudi-launch stop --orphans*": "commands/services/test_services.py::"
    "test_the_orphans_of_a_killed_launcher_are_found_and_only_they_are_ended",
    "gaudi-launch kube status*": "extensions/kubernetes/kube/test_command.py::"
    "test_a_kind_that_is_closed_to_the_user_is_no_failure",
    "gaudi-launch kube logs*": "extensions/kubernetes/kube/test_command.py::test_logs",
    "gaudi-launch kube delete*": "extensions/kubernetes/kube/test_command.py::"
    "test_delete_keeps_the_claims",
    "gaudi-launch fp8 calibrate*": "extensions/fp8/test_fp8_calibrate.py::"
    "test_the_whole_way_to_fp8",
    "gaudi-launch stack up*": "extensions/stack/test_case.py::"
    "test_a_stack_answers_stays_as_it_is_heals_and_leaves_nothing",
    "gaudi-launch stack apply*": "extensions/stack/test_case.py::"
    "test_whatever_is_killed_around_a_change_the_next_one_completes_it",
    "gaudi-launch stack logs*": "extensions/stack/test_command.py::"
    "test_logs_name_the_service_of_each_line",
    "gaudi-launch stack restart*": "extensions/stack/test_case.py::"
    "test_replicas_change_one_by_one_and_gateway_settings_without_a_restart",
}


def by_others(line: str) -> bool:
    """Return True for a command that another test runs."""
    return any(fnmatch.fnmatch(line, row) for row in BY_OTHERS)


# the lines that the doctor gives to a shell, and what separates two commands of a line
SHELL = remedies_commands()
PIPED = re.compile(r"\s*(?:&&|\||;)\s+")
MODEL = "models/Qwen3-8B"
FIRST = [[path.split()[0]] for path in PATHS if path]
# the words of commands that prose has, too
NAMES = {word for path in PATHS for word in path.split()[1:]} | {"cpu", "gateway", "ray", "docker"}
# what cannot run here, by its first words and its only reason: root, a reboot, a card, a network
CANNOT = {
    "sudo cpupower": "root",
    "sudo tee": "root",
    "sudo sysctl": "root",
    "sudo swapoff": "root",
    "sudo swapon": "root",
    "sudo mount": "root",
    "sudo modprobe": "root",
    "sudo dkms": "root",
    "sudo hl-fw-loader": "root",
    "sudo apt-get": "root",
    "sudo update-grub": "root",
    "sudo usermod": "root",
    "sudo dmesg": "root",
    "sudo /opt/habanalabs/qual/gaudi2/bin/manage_network_ifs.sh": "a card",
    "lspci": "a card",
    "./habanalabs-installer.sh": "root",
    "wget": "a network",
    "PYTHON -m pip install": "a network",
}

# it promises failures, and finds them
FAILING = "gaudi-launch doctor --machine simulated:hls2+bad-tuning"


def test_each_help_ends_with_two_or_three_examples() -> None:
    found = {path: len(examples().get(path, ())) for path in PATHS}
    assert {path: count for path, count in found.items() if count not in (2, 3)} == {}
    assert sorted(examples().keys() - set(PATHS)) == []


def test_an_example_is_one_of_its_command() -> None:
    wrong = [
        (path, line)
        for path, lines in examples().items()
        for line in lines
        if f"gaudi-launch {path}".strip() not in line
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
    values = recorded.surroundings(tmp_path)
    values["PATH"] = f"{machine / 'bin'}:{values['PATH']}"
    values |= {"GAUDI_LAUNCH_ROOT": str(machine), "KUBECONFIG": str(tmp_path / "none")}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    # each host of the inventory is this machine
    programs = f"PATH={Path(sys.executable).parent}:/usr/bin:/bin:$PATH"
    (tmp_path / "bin" / "ssh").write_text(
        f'#!/bin/sh\n{programs}\nshift $(($# - 1))\nexec sh -c "$1"\n'
    )
    (tmp_path / "bin" / "ssh").chmod(0o755)
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
    inventory = recorded.INVENTORY.replace("}", ", interface: ens8f0}")
    (tmp_path / "hosts.yaml").write_text(inventory)
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
    route.plan(replace(options, machine=options.machine or "simulated:hls2"))
    raise typer.Exit()


# what no example does; gradio takes seconds to import, and tests/extensions/bench/test_webui.py has
# its page
KEPT_FROM: tuple[tuple[object, str], ...] = (
    (pack, "_collect_engine"),
    (pack, "_collect_launcher"),
    (todo.CheckedPlan, "refuse"),
    (stop, "restart"),
    (chat_page, "serve"),
)


def prepared(line: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make what only this command needs, and keep it from starting or ending anything."""
    for owner, name in KEPT_FROM:
        monkeypatch.setattr(owner, name, lambda *_, **__: None)
    monkeypatch.setattr(serve, "start", planned)
    if "setup" in line and "--rollback" in line:
        two_versions(place, monkeypatch)
    monkeypatch.setattr(case, "_install_engine", lambda *_: "python")
    if line == "gaudi-launch why":
        failed = place / "state/gaudi-launch/services/failed"
        failed.mkdir()
        facts = {"schema": 1, "name": "failed", "phase": "failed", "outcome": "died"}
        facts |= {"status": 1, "ended": 1.0}
        (failed / "state.json").write_text(json.dumps(facts))
        shutil.copy(place / "engine.log", failed / "engine.log")
    if " stop " in line or line.endswith(("logs demo -f", "logs -f demo")):
        # a service that has ended: one that runs would be this test's own process
        state = place / "state/gaudi-launch/services"
        (state / "old").rename(state / "ended")
        (state / "demo").rename(place / "answering")
        (state / "ended").rename(state / "demo")
    if "--learn" in line:
        model, engine = {"path": str(place / "models/Qwen3-8B")}, {"name": "cpu", "version": "1"}
        plan = {"engine": engine, "model": model, "dtype": "float32", "modules": []}
        (place / "state/gaudi-launch/services/demo/plan.json").write_text(json.dumps(plan))
    made = {
        "offline show": "offline pack demo --engine cpu --to demo.tar",
        "offline install": "offline pack demo --engine cpu --to demo.tar",
        "stack plan": "stack init Qwen/Qwen3-8B --machine simulated:hls2",
        "stack down": "stack init Qwen/Qwen3-8B --machine simulated:hls2",
        "--stack stack.yaml": "stack init Qwen/Qwen3-8B --machine simulated:hls2",
        "--check serve.yaml": "render ray-serve Qwen/Qwen3-8B --machine simulated:hls2 --to "
        "serve.yaml",
        "hls2.json,": "devices snapshot hls2.json --machine simulated:hls2",
        "tune plans": "recommend Qwen/Qwen3-8B -n 1 -d bf16 -i 64 -o 64 --save plans",
        "saved.json": "plan Qwen/Qwen3-8B --machine simulated:hls2 -i 16,32 -o 4,8 "
        "--save saved.json",
        "cache import": "cache export ffd155d6 key.tar.zst -c recipes",
        "--learn run.json": "bench demo --requests 8 -i 16 -o 4 --save run.json",
        "bench compare": "bench demo --requests 4 -i 16 -o 4 --save before.json",
    }
    for part, words in made.items():
        if part in line:
            assert run(shlex.split(words)) == 0
    if "bench compare" in line:
        load = ["bench", "demo", "--requests", "4", "-i", "16", "-o", "4"]
        assert run([*load, "--save", "after.json"]) == 0
    if "mine.yaml" in line:
        (place / "mine.yaml").write_text((TOP / "profiles/models/qwen3-8b.yaml").read_text())


def split(line: str) -> tuple[list[list[str]], str]:
    """Return the commands of a line without the program's name, and what a pipe gives them."""
    piped = ""
    if "|" in line:
        echo, line = line.split("|")
        piped = shlex.split(echo)[1]
    commands = [shlex.split(part.strip())[1:] for part in line.split("&&")]
    return [[each for word in words for each in globbed(word)] for words in commands], piped


def globbed(word: str) -> list[str]:
    """Return the files of a pattern as a shell does, else the word."""
    return sorted(map(str, Path().glob(word))) if word.endswith("*.yaml") else [word]


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


def two_versions(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a second version of the embedded engine in force."""
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(place / "engines"))
    for name in ("cpu", "cpu+2"):
        folder = place / "engines" / name
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "gaudi-launch.json").write_text(json.dumps({"vllm": name}))
        EMBEDDED.versions().put_in_force(folder)


def test_what_cannot_run_has_one_of_four_reasons() -> None:
    assert {*CANNOT.values()} <= {"root", "a reboot", "a card", "a network"}
    assert len(CANNOT) <= 25
    assert [row for row in BY_OTHERS if not fnmatch.filter([*SHOWN, *LINES], row)] == []
    parts = [part for line in SHELL for part in PIPED.split(line)]
    assert [row for row in CANNOT if not any(_is(part, row) for part in parts)] == []


@pytest.mark.parametrize("line", BY_OTHERS)
def test_the_test_that_runs_a_command_has_its_words(line: str) -> None:
    """The named test has the command's words, or the helpers of its file have them for all."""
    path, _, name = BY_OTHERS[line].partition("::")
    body = ast.parse((TOP / "tests" / path).read_text(encoding="utf-8")).body
    tests = [each for each in body if getattr(each, "name", "").startswith("test_")]
    [named] = [each for each in tests if getattr(each, "name", "") == name]
    helpers = [each for each in body if each not in tests]
    words = shlex.split(line.partition("|")[0])[1:]
    wanted = {word.rstrip("*") for word in words}
    assert wanted - strings(named, *helpers) == set()
    assert len(wanted) == 1 or wanted & strings(named)


def strings(*nodes: ast.AST) -> set[str]:
    """Return the words of all texts in this code."""
    found = [node for top in nodes for node in ast.walk(top) if isinstance(node, ast.Constant)]
    return {word for node in found if isinstance(node.value, str) for word in node.value.split()}


def _is(part: str, row: str) -> bool:
    """Return True for a command of a row of `CANNOT`; PYTHON is any interpreter."""
    program, _, rest = part.partition(" ")
    if row.startswith("PYTHON ") and "python" in program:
        part = f"PYTHON {rest}"
    return f"{part} ".startswith(f"{row} ")


@pytest.mark.parametrize("line", SHELL)
def test_each_line_of_a_remedy_is_parsed_and_what_can_run_runs(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line of the doctor: options of docker, commands of this program, and of the shell."""
    if line.startswith("--"):
        words = ["render", "docker", "Qwen/Qwen3-8B", "-n", "1", "--machine", "simulated:hls2"]
        assert run(words) == 0
        told = capfd.readouterr().out
        assert [word for word in line.split() if word.partition("=")[0] not in told] == []
        return
    subprocess.run(["/bin/bash", "-n", "-c", line], check=True, timeout=GENEROUS)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/usr/bin:/sbin:/bin")
    for part in PIPED.split(line):
        if part.startswith(("gaudi-launch ", "sudo gaudi-launch ")):
            words = shlex.split(valued(part.removeprefix("sudo ").replace("ENGINE", "vllm-gaudi")))[
                1:
            ]
            words = [MODEL if word == "/models/m" else word for word in words]
            prepared(part, place, monkeypatch)
            assert run(words) in (0, 3), part
        elif not any(_is(part, row) for row in CANNOT):
            (place / "habanalabs-installer.sh").touch()
            (place / "gateway").mkdir(exist_ok=True)
            here = part.replace("/engines/gateway", str(place / "gateway"))
            # a filter of what another command prints finds nothing here
            done = subprocess.run(["/bin/bash", "-c", here], check=False, stdin=subprocess.DEVNULL)
            assert done.returncode == (1 if part.startswith("grep ") else 0), part


TODO = [
    ("Qwen/Qwen3-8B", "-n", "1"),
    ("Qwen/Qwen3-8B", "-n", "2", "-d", "fp8"),
    ("Qwen/Qwen3-8B", "-n", "1", "--engine", "vllm-gaudi@0.24.0"),
    ("Qwen/Qwen3-8B", "-n", "1", "--engine", "vllm-fork@1.22"),
    ("Qwen/Qwen3-8B", "-n", "1", "--engine", "ray-serve:vllm-gaudi"),
    ("Qwen/Qwen3-8B", "--engine", "ray-serve:cpu"),
    ("deepseek-ai/DeepSeek-R1", "-n", "8", "-q", "--engine", "deepseek_r1"),
    ("Qwen3-8B", "-n", "1"),
    ("Qwen/Qwen3-8B", "--engine", "simulated"),
    ("demo",),
]


@pytest.mark.parametrize("words", TODO, ids=" ".join)
def test_each_command_of_a_plans_list_runs(
    words: tuple[str, ...],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["plan", *words, "--json"]) in (0, 3)
    steps = json.loads(capsys.readouterr().out)["todo"]
    assert any(step["command"] for step in steps)
    files = {"Qwen/Qwen3-8B": FILES, "deepseek-ai/DeepSeek-R1": FILES}
    with Hub(FILES, others=files, repo="Yi30/inc-woq-2282samples-514-g2") as hub:
        for name, value in hub.environment().items():
            monkeypatch.setenv(name, value)
        for step in steps:
            command = shlex.join(step["command"])
            cannot = any(_is(command, row) for row in CANNOT)
            if not command or cannot or by_others(command):
                continue
            argv = shlex.split(valued(command))
            assert argv[0] == "gaudi-launch"
            code, said = ran(argv[1:], capsys)
            assert code == 0, said


@pytest.mark.parametrize("file", catalogue_files("en"), ids=str)
def test_chinese_sentences_have_the_commands_of_the_english_ones(file: Path) -> None:
    chinese = json.loads(file.with_name("zh.json").read_text(encoding="utf-8"))
    english = json.loads(file.read_text(encoding="utf-8"))
    differs = {
        id: (commands(said), commands(chinese[id]))
        for id, said in english.items()
        if commands(said) != commands(chinese[id])
    }
    assert differs == {}


def commands(sentence: str) -> list[str]:
    """Return the commands of a sentence: the words that no prose has after the program's name."""
    found = []
    for tail in re.split(r"(?=\bgaudi-launch )", sentence)[1:]:
        words = re.findall(r"[!-~]+", re.split(r"[^ -~]|[;,()'\n]|\. |\.$|: ", tail)[0])
        if words[1:2] not in FIRST:
            continue
        kept = words[:2]
        for word in words[2:]:
            if not re.match(r"-|\{|[A-Z]|[\w.]*[/.=\d]", word) and word not in NAMES:
                break
            kept.append(word)
        found.append(" ".join(kept))
    return sorted(found)


@pytest.mark.parametrize("line", [line for line in SHOWN if not by_others(line)])
def test_each_command_of_a_message_runs(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared(line, place, monkeypatch)
    commands, _ = split(line)
    words = commands[0]
    code, said = ran(words, capsys)
    if code == 2 and " ".join(words) in PATHS:
        # the sentence names a command, which needs a model or a file
        code, said = ran([*words, "--help"], capsys)
    # this machine has cards, and no engine for them
    engine = line.startswith("gaudi-launch doctor") and "FAIL    Engine: " in said
    # and a service that is ready, which the test of the cards must not disturb
    refused = "--deep" in line and "is ready: demo" in said
    assert code == (3 if engine or refused else 0), f"{SHOWN[line]}: {said}"
    assert "Traceback" not in said


@pytest.mark.parametrize("line", [line for line in LINES if not by_others(line)])
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
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setenv("MODELSCOPE_DOMAIN", hub.url.removeprefix("http://"))
        for words in commands:
            code, said = ran(words, capsys)
            # on this machine it finds cards, and no engine for them
            expected = 3 if line in ("gaudi-launch doctor", FAILING) else 0
            assert code == expected, said
            assert "Traceback" not in said
