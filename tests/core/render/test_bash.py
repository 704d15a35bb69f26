"""Scripts: shellcheck accepts them, bash reads back every word, and they start a real process
without us."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.install.install_steps import SetupExtras, dockerfile
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.core.render import docker, script
from gaudi_launch.core.render.plan_container import container_of
from tests.support.plans import odd, planned
from tests.support.processes import living
from tests.support.refusals import failing
from tests.support.render_tools import NAMES, ODD, shellcheck
from tests.support.waiting import GENEROUS

_TELL = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
TELL = (sys.executable, "-c", _TELL)


def told(
    folder: Path, text: str, *, path: str = os.environ["PATH"], **more: str
) -> tuple[list[str], dict[str, str]]:
    """What the program of a script was given."""
    file = folder / "run.sh"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["bash", str(file)],
        capture_output=True,
        check=False,
        env={"PATH": path, "LC_ALL": "C.UTF-8", "HOME": str(folder), **more},
    )
    assert done.returncode == 0, done.stderr
    words, environment = json.loads(done.stdout)
    return words, environment


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22", "cpu"])
def test_shellcheck_accepts_every_script(engine: str, tmp_path: Path) -> None:
    plan, host = planned(engine)
    plan = replace(
        plan, command=replace(plan.command, unset=("NUMEXPR_MAX_THREADS",), working_dir="/tmp")
    )
    given = {"HF_TOKEN": "x", "VLLM_API_KEY": "y"}
    container = container_of(plan, host, environment=given, image="i")
    text = None if engine == "cpu" else dockerfile(needed_release(engine), SetupExtras())
    rendered = {
        **script.render(plan, given).files,
        **docker.render(container, "n", ["head"], text, {}).files,
    }
    files = []
    for name, content in rendered.items():
        if name.endswith(".sh"):
            files.append(tmp_path / name)
            files[-1].write_text(content, encoding="utf-8")
    assert [file.name for file in files] == ["serve.sh", "docker.sh"]
    shellcheck(*files)


# words that shellcheck would ask about, or take for something else
ASKED = (
    "it's $HOME `id`",
    "$(id)",
    "a\\",
    "it’s ‘x’",
    "“x”",
    "~/x",
    "=x",
    "+=x",
    "[a]=b",
    "a,b",
    "{a,b}",
    "",
    "a\nb",
)


def test_shellcheck_accepts_awkward_words_as_they_stand(tmp_path: Path) -> None:
    container = Container(
        "i", ASKED, {"A": "$HOME"}, mounts=(Mount("/a $x", "/m", True),), url="http://h:1"
    )
    texts = [docker.render(container, "n", ["head"], None, {"/d $x/f": "$y"}).files["docker.sh"]]
    for word in ASKED:
        plan = odd(("x", word), {"A": word})
        texts.append(script.render(plan, {}).files["serve.sh"])
    for number, content in enumerate(texts):
        (tmp_path / f"{number}.sh").write_text(content, encoding="utf-8")
    shellcheck(*tmp_path.glob("*.sh"))


PROPERTY = settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
WORDS = st.lists(ODD, max_size=12)
ENV = st.dictionaries(NAMES, ODD, max_size=5)


@PROPERTY
@given(words=WORDS, variables=ENV)
def test_bash_reads_back_every_word(
    words: list[str], variables: dict[str, str], tmp_path: Path
) -> None:
    plan = odd((*TELL, *words), variables)
    read, environment = told(tmp_path, script.render(plan, {}).files["serve.sh"])
    assert read == words
    assert {name: environment.get(name) for name in variables} == variables


@PROPERTY
@given(words=WORDS, variables=ENV, folder=ODD)
def test_docker_gets_every_word(
    words: list[str], variables: dict[str, str], folder: str, tmp_path: Path
) -> None:
    container = Container(
        "i",
        tuple(words),
        variables,
        entrypoint="python3",
        mounts=(Mount(f"/{folder}", "/m", True),),
        url="http://h:1",
    )
    stand_in(tmp_path)
    text = docker.render(container, "n", ["head"], None, {}).files["docker.sh"]
    read, _ = told(tmp_path, text, path=f"{tmp_path}:{os.environ['PATH']}")
    assert ("docker", *read) == docker.run_words(container, "n")


def stand_in(folder: Path) -> None:
    """A docker that tells what it was given; an image is there once it was built."""
    program = folder / "docker"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, sys\n"
        "built = pathlib.Path(sys.argv[0]).with_name('built')\n"
        "if sys.argv[1:3] == ['image', 'inspect']:\n"
        "    sys.exit(0 if built.exists() else 1)\n"
        "if sys.argv[1] == 'build':\n"
        "    built.write_text(json.dumps([sys.argv[1:], sys.stdin.read()]))\n"
        "    sys.exit()\n"
        "print(json.dumps([sys.argv[1:], dict(os.environ)]))\n",
        encoding="utf-8",
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_nothing_runs_without_the_servers_key(tmp_path: Path) -> None:
    plan = odd(TELL, {"VLLM_API_KEY": "s3cret"})
    text = script.render(plan, {"HF_TOKEN": "hf_x"}).files["serve.sh"]
    assert "s3cret" not in text and "hf_x" not in text
    (tmp_path / "s.sh").write_text(text)
    bare = {"PATH": os.environ["PATH"]}
    refused = subprocess.run(
        ["bash", tmp_path / "s.sh"], capture_output=True, text=True, env=bare, check=False
    )
    assert refused.returncode != 0 and "VLLM_API_KEY" in refused.stderr
    _, environment = told(tmp_path, text, VLLM_API_KEY="mine")
    assert environment["VLLM_API_KEY"] == "mine"


def test_the_script_starts_the_engine_and_hands_it_signals(
    tmp_path: Path, trivial_python: Path, free_port: int, pids: Path
) -> None:
    plan, _ = planned(port=free_port, python=str(trivial_python), served_name="small")
    file = tmp_path / "serve.sh"
    file.write_text(script.render(plan, {}).files["serve.sh"], encoding="utf-8")
    with (tmp_path / "log").open("wb") as log:
        engine = subprocess.Popen(
            ["bash", str(file)],
            env={**os.environ, "TRIVIAL_PIDS": str(pids)},
            stdout=log,
            stderr=log,
        )
    try:
        ask = build_opener(ProxyHandler({})).open
        deadline = time.monotonic() + 20
        while True:
            try:
                with ask(f"http://127.0.0.1:{free_port}/v1/models", timeout=5) as answer:
                    assert json.load(answer)["data"][0]["id"] == "small"
                break
            except OSError:
                assert engine.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
        engine.send_signal(signal.SIGTERM)
        assert engine.wait(GENEROUS) == 0
    finally:
        engine.kill()
        engine.wait()
    # the trivial engine leaves its children behind, as real ones do when they are killed
    for pid in living(pids):
        os.kill(pid, signal.SIGKILL)
    while living(pids):
        time.sleep(0.05)


def test_a_name_in_a_comment_cannot_end_it(tmp_path: Path) -> None:
    plan = replace(odd(TELL, {}), model={"path": "/m\ntouch /tmp/never; exit 7\n#"})
    text = script.render(plan, {}).files["serve.sh"]
    assert text.splitlines()[1].startswith("# vllm-fork@1.21 serving /m?touch /tmp/never; exit 7?#")
    told(tmp_path, text)


@pytest.mark.parametrize("word", ["a\0b", "\udcff"])
def test_words_that_are_no_text(word: str) -> None:
    for plan in (odd(("x", word), {}), odd(("x",), {"A": word}), odd(("x",), {"A B": "1"})):
        with failing("render.not_text", ExitCode.USAGE):
            script.render(plan, {})


def test_a_container_of_this_box_has_other_numbers() -> None:
    assert container_of(odd(("x",), {}), make("gaudi2e-8")).indices == (4, 6)
