"""Every command of the README and of the pages in docs/ is run, and both languages show the same
ones."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gaudi_launch.cli.help import examples
from gaudi_launch.cli.main import run
from gaudi_launch.core.base.locks import try_ofd
from tests.support.cli import called
from tests.support.every_case import EVERY_CASE
from tests.support.help_texts import all_commands
from tests.support.machines import link_tree
from tests.support.places import TOP
from tests.support.processes import TRIVIAL, write_engine_python
from tests.support.serve import write_model
from tests.support.shown import missing_lines, steps_of
from tests.support.stand_in_server import serving
from tests.support.waiting import GENEROUS, unused_port

FENCE = re.compile(r"```bash\n(.*?)```", re.DOTALL)


PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


# pages by their English name; the Chinese one is next to it
PAGES = ["README.md", *sorted(f"{path.relative_to(TOP)}" for path in (TOP / "docs").rglob("*.md"))]
PAGES = [name for name in PAGES if not name.endswith("_zh.md")]
# English only
FOR_CONTRIBUTORS = ["CONTRIBUTING.md", "SECURITY.md"]


def chinese(name: str) -> str:
    return name.replace(".md", "_zh.md")


def read(name: str) -> str:
    return (TOP / name).read_text(encoding="utf-8")


def markdown(name: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(read(name))


def commands(name: str) -> list[str]:
    return [line for block in FENCE.findall(read(name)) for line in block.strip().splitlines()]


# tests/program/test_help_examples.py runs those of this page
EXAMPLES = "docs/commands.md"
# the pages repeat some commands: each is run once
COMMANDS = list(
    dict.fromkeys(
        line for name in (*PAGES, *FOR_CONTRIBUTORS) if name != EXAMPLES for line in commands(name)
    )
)
# CI runs the tests by the second; the first makes its own environment and ends in the e2e tests'
# own job
BY_OTHERS = {
    "bash scripts/quickstart.sh",
    "bash scripts/test.sh",
    "bash scripts/test.sh -m quick",
    "pip install .",
    # tests/e2e/test_services.py
    "gaudi-launch serve demo --detach",
    # tests/e2e/test_ray_serve.py
    "gaudi-launch serve -w demo --engine ray-serve --detach --name demo",
    # tests/e2e/conftest.py
    "gaudi-launch setup cpu",
    # they download wheels: tests/extensions/offline/test_case.py, and scripts/acceptance/offline.py
    *(command for command in COMMANDS if " offline pack " in command),
    *(command for command in COMMANDS if "gaudi/bin/" in command),
    # tests/e2e/test_simulated.py
    *(command for command in COMMANDS if "rehearsal" in command),
    # it starts engines for as long as it says: tests/extensions/bench/tune/test_case.py
    *(command for command in COMMANDS if " tune " in command),
    # tests/e2e/test_tutorial.py
    *commands("docs/tutorial.md"),
    # lasts until it is stopped: tests/extensions/bench/test_webui.py
    "gaudi-launch webui demo",
    # simulates as much as all other commands together, as the one with 20/s does
    *(command for command in COMMANDS if "--rate 1000/s" in command and not EVERY_CASE),
}
# what these need stands on a Gaudi server, or they change the machine: here a machine in a folder
# is theirs
ENDS = {
    # cards, and no engine for them
    "gaudi-launch doctor": {0, 3},
    "gaudi-launch doctor --fix": {0, 3},
    "gaudi-launch serve": {5},
    # no cluster here: tests/extensions/kubernetes/kube/test_command.py has one that answers
    "gaudi-launch kube": {3},
    # no engine here: told before anything is fetched
    "gaudi-launch serve -w deepseek-ai/DeepSeek-R1-0528 -n 8 -q --trust-remote-code": {3},
    "gaudi-launch fp8": {0, 3},
}
# no host of the page's inventory can be reached here; with real Ray tests/e2e/test_cluster.py runs
# them
ENDS |= {command: {3} for command in COMMANDS if command.startswith("gaudi-launch cluster up ")}
ENDS |= {"gaudi-launch cluster status": {2}, "gaudi-launch cluster down": {2}}
YAML = re.compile(r"```yaml\n(schema: 1\nhosts:.*?)```", re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_show_the_same_commands(name: str) -> None:
    assert commands(chinese(name)) == commands(name)


def programs(name: str) -> list[str]:
    return PYTHON.findall(read(name))


def test_the_commands_of_the_examples_page_are_examples() -> None:
    known = {line for lines in examples().values() for line in lines}
    assert [line for line in commands(EXAMPLES) if line not in known] == []


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_show_the_same_programs(name: str) -> None:
    assert programs(chinese(name)) == programs(name)


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_have_the_same_paragraphs(name: str) -> None:
    """Compare headings by level, paragraphs, items of lists, rows of tables, blocks by language."""
    english, other = (
        [(each.type, each.tag, each.info) for each in markdown(page) if each.type != "inline"]
        for page in (name, chinese(name))
    )
    assert english == other


@pytest.mark.parametrize("name", ["README.md", "README_zh.md"])
def test_the_readme_is_short(name: str) -> None:
    assert len(read(name).splitlines()) <= 150


@pytest.mark.parametrize("name", ["docs/index.md", "docs/index_zh.md"])
def test_the_index_names_every_page(name: str) -> None:
    listed = [
        f"docs/{found}" for found in re.findall(r"(?m)^- \[.+?\]\(([\w/-]+\.md)\)", read(name))
    ]
    pages = {page for page in PAGES if page.startswith("docs/")}
    expected = pages if name == "docs/index.md" else set(map(chinese, pages))
    assert sorted(listed) == sorted(expected - {name})


@pytest.mark.parametrize("name", [*PAGES, *map(chinese, PAGES), *FOR_CONTRIBUTORS])
def test_links_lead_to_files(name: str) -> None:
    links = re.findall(
        r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", read(name), flags=re.DOTALL)
    )
    folder = (TOP / name).parent
    assert [link for link in links if not (folder / link).is_file()] == []


@pytest.mark.parametrize("name", [*PAGES, *map(chinese, PAGES), *FOR_CONTRIBUTORS])
def test_every_row_is_in_a_table(name: str) -> None:
    """A blank line ends a table: Markdown shows the rows after it as text with bars."""
    paragraphs = [token.content for token in markdown(name) if token.type == "inline"]
    assert [text for text in paragraphs if text.startswith("|")] == []


def test_every_command_of_the_program_is_in_the_table() -> None:
    from gaudi_launch.cli.table import COMMANDS as known

    for name in ("docs/commands.md", "docs/commands_zh.md"):
        text = read(name)
        assert [command for command in known if f"`{command}`" not in text] == []


def shown_in_text(name: str) -> list[str]:
    """Return the commands in the text of a page and in blocks that are not run."""
    text = re.sub(r"```bash\n.*?```", "", read(name), flags=re.DOTALL)
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [line for line in (*lines, *inline) if line.startswith("gaudi-launch ")]


@pytest.mark.parametrize("name", PAGES)
def test_commands_in_the_text_have_options_that_exist(name: str) -> None:
    known = {found.path: found for found in all_commands()}
    wrong = []
    for line in shown_in_text(name):
        words = shlex.split(line.split(" | ")[0].split("[")[0], comments=True)[1:]
        own = words[: words.index("--")] if "--" in words else words
        path = " ".join(own[:2]) if " ".join(own[:2]) in known else "".join(own[:1])
        if not own or own[0].isupper() or own[0].startswith("-"):
            path = ""
        if path not in known:
            wrong.append(line)
            continue
        spellings = {"--lang", "--debug", "--help"}
        for param in known[path].command.get_params(known[path].context):
            spellings |= {*param.opts, *param.secondary_opts}
        wrong += [
            line for word in own if word.startswith("-") and word not in spellings and len(word) > 1
        ]
    assert wrong == []


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder to stand in, with a log to explain, a trace, a known-good machine, and a service
    that answers."""
    folder = tmp_path_factory.mktemp("readme")
    machine = folder / "machine"
    link_tree("hls2", machine)
    (inventory,) = YAML.findall(read("docs/cluster.md"))
    (folder / "cluster.yaml").write_text(inventory)
    ssh = machine / "bin" / "ssh"
    ssh.write_text("#!/bin/sh\necho 'ssh: No route to host' >&2\nexit 255\n")
    ssh.chmod(0o755)
    (folder / "engine.log").write_text("OSError: [Errno 98] Address already in use\n")
    python = write_engine_python(folder / "engine-python", f"{sys.executable} {TRIVIAL}")
    write_model(folder / "Small")
    environment = {
        **os.environ,
        "GAUDI_LAUNCH_ROOT": str(machine),
        "PATH": f"{machine / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        **{
            f"XDG_{kind}_HOME": str(folder / kind.lower())
            for kind in ("STATE", "CACHE", "DATA", "CONFIG")
        },
        "LC_ALL": "C.UTF-8",
        "KUBECONFIG": str(folder / "no-cluster"),
    }
    # the service that the section on services asks for
    words = (
        "-w",
        str(folder / "Small"),
        "--python",
        str(python),
        "--no-doctor",
        "--detach",
        "--name",
        "demo",
        "-p",
        str(unused_port()),
    )
    # on a machine of its own, so that it holds no card that another command wants
    link_tree("hls2", folder / "other")
    other = {**environment, "GAUDI_LAUNCH_ROOT": str(folder / "other")}
    code, out, err = called(other, "serve", *words)
    assert code == 0, out + err
    with measured(folder):
        yield folder, environment
    called(environment, "stop", "--all", "--drain", "0")


MEASURING = ("check", "chat", "bench", "webui", "exporter")


@contextmanager
def measured(folder: Path) -> Iterator[None]:
    """Another service named demo, in a state folder of its own, which streams; and a trace to
    replay against it."""
    (folder / "trace.csv").write_text("t_seconds,input_tokens,output_tokens\n0,40,8\n0.1,60,4\n")
    demo = folder / "measured/gaudi-launch/services/demo"
    demo.mkdir(parents=True)
    (demo / "lock").touch()
    with serving(gap=0.001) as (url, _), (demo / "lock").open("r+b") as lock:
        assert try_ofd(lock.fileno())
        (demo / "state.json").write_text(json.dumps({"name": "demo", "url": url, "phase": "ready"}))
        yield


@pytest.mark.complete
@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in BY_OTHERS])
def test_each_command(
    command: str,
    workplace: tuple[Path, dict[str, str]],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "--orphans" in command:
        request.getfixturevalue("only_orphans")
    folder, environment = workplace
    words = shlex.split(command)
    assert words[0] == "gaudi-launch"
    if "--plot" in words and find_spec("matplotlib") is None:
        pytest.skip("matplotlib (extra plot) is not installed")
    if words[1] in MEASURING:
        environment = {**environment, "XDG_STATE_HOME": str(folder / "measured")}
    monkeypatch.chdir(folder)
    code, out, err = called(environment, *words[1:], given="What is the capital of France?")
    expected = ENDS.get(command, ENDS.get(" ".join(words[:2]), {0}))
    assert code in expected, out + err


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_tutorial_shows_what_its_commands_print(
    language: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """UPDATE_GOLDEN=1 writes the outputs of the page again."""
    name = "docs/tutorial-migrate.md"
    name = name if language == "en" else chinese(name)
    for kind in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path))
    # nothing is read there or written: the page shows where a download would be
    monkeypatch.setenv("XDG_DATA_HOME", "/home/me/.local/share")
    monkeypatch.setenv("COLUMNS", "80")
    page = read(name)
    steps = steps_of(page)
    for step in steps:
        assert run(["--lang", language, *shlex.split(step.code)[1:]]) == 0
        lines = capsys.readouterr().out.splitlines()
        shown = "".join(f"{line.rstrip()}\n" for line in lines)
        if os.environ.get("UPDATE_GOLDEN"):
            page = page.replace(step.shown, shown)
            (TOP / name).write_text(page, encoding="utf-8")
        else:
            assert [*missing_lines(step.shown, shown)] == []
    assert len(steps) == len(commands(name))


def test_the_program_plans_serves_and_stops(workplace: tuple[Path, dict[str, str]]) -> None:
    folder, environment = workplace
    (program,) = programs("docs/serving.md")
    # services of other tests take the ports above the default one
    port = unused_port()
    # the engine's interpreter is the one on PATH, and the model is one that this machine has
    (folder / "engine").mkdir()
    (folder / "engine" / "python3").symlink_to(folder / "engine-python")
    (folder / "program.py").write_text(
        program.replace("/models/Qwen2-72B-Instruct", str(folder / "Small")).replace(
            "port=30002", f"port={port}"
        )
    )
    link_tree("hls2", folder / "third")
    own = {"GAUDI_LAUNCH_ROOT": str(folder / "third"), "PYTHONPATH": str(TOP)}
    path = f"{folder / 'engine'}:{folder / 'third' / 'bin'}:{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**environment, **own, "PATH": path},
        capture_output=True,
        text=True,
        timeout=GENEROUS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *settings, served = done.stdout.splitlines()
    assert "--tensor-parallel-size 4 flag" in settings
    log = folder / "state/gaudi-launch/services/from-python/engine.log"
    assert served == f"from-python ready http://127.0.0.1:{port} {log}"
    after = json.loads(called(environment, "ps", "-a", "--json")[1])
    assert [row["phase"] for row in after["services"] if row["name"] == "from-python"] == [
        "stopped"
    ]


@pytest.mark.e2e
def test_the_first_command_ends_in_an_answer(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "scripts/quickstart.sh"],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "The capital of France is Paris." in done.stdout
