"""vllm-gaudi's whole path with the CPU build behind it: cards, plan, bucket file, words, answer,
end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import psutil
import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.engines.install.demo import demo_dir
from gaudi_launch.core.host.simulated import write_tree
from tests.e2e import gaudi_stand_in
from tests.support.every_case import ONE_MORE_ENGINE
from tests.support.options_table import UPSTREAM, parse
from tests.support.real_engines import Serve, ask, keep_vllm_cache

pytestmark = pytest.mark.e2e


@pytest.fixture
def python(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The interpreter of a machine with eight Gaudi2 cards and the plugin."""
    machine = tmp_path / "machine"
    write_tree("hls2", machine)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(machine))
    monkeypatch.setenv("PATH", f"{machine / 'bin'}:{os.environ['PATH']}")
    keep_vllm_cache(tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith(("VLLM_", "HABANA_", "PT_"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "container"
    folder.mkdir()
    return gaudi_stand_in.write(folder, Path(sys.executable), engine)


def test_the_demo_model_on_one_simulated_card(
    python: Path, port: int, tmp_path: Path, serving: list[Serve]
) -> None:
    state = tmp_path / "state"
    model = str(demo_dir())
    serve = Serve(
        state, "-w", model, "--python", str(python), "-p", str(port), "-l", "1024", "-b", "8", "-n",
        "1", "--served-name", "demo", "--name", "gaudi", "--no-doctor",
    )  # fmt: skip
    serving.append(serve)
    lines = serve.ready()
    assert lines[0].endswith(f"demo answers at http://127.0.0.1:{port}\n"), serve.end()[1]
    answer = json.loads(ask(port, model="demo"))
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
    # API server, engine core and worker: more than one process, and all of them end
    assert len(serve.family) >= 2
    code, err = serve.end()
    assert code == 130 and err.splitlines()[-1] == "Stopped; no process remains."
    assert serve.alive() == []

    folder = state / "gaudi-launch/services/gaudi"
    ended = json.loads((folder / "state.json").read_text())
    assert (ended["phase"], ended["outcome"]) == ("stopped", "stopped")
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["engine"]["name"] == "vllm-gaudi" and plan["engine"]["version"] == "0.26.0"
    # the file was there before the engine, and it is the plan's
    path = plan["env"]["VLLM_BUCKETING_FROM_FILE"]
    assert Path(path).read_text() == plan["files"][path]
    prompt, decode = gaudi_stand_in.buckets(path)
    assert (prompt, decode) == (len(plan["buckets"]["prompt"]), len(plan["buckets"]["decode"]))
    facts = json.loads((folder / "state.json").read_text())["facts"]
    assert (facts["graphs_prompt"], facts["graphs_decode"]) == (prompt, decode)
    # and the words that the real parser took are the ones of the plan
    log = (folder / "engine.log").read_text()
    words = next(line for line in log.splitlines() if line.startswith("words: ")).split()[1:]
    assert words == plan["argv"][1:]
    assert parse(UPSTREAM[-1], words[3:]).async_scheduling


@ONE_MORE_ENGINE
def test_an_embedding_model_embeds_and_a_killed_api_process_is_exit_4(
    python: Path,
    tiny_model: Path,
    port: int,
    tmp_path: Path,
    serving: list[Serve],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A language model whose name says embedding: upstream is told to pool, nothing is warmed
    up, check embeds. Its API process is killed: no engine core is left."""
    model = tmp_path / "tiny-embedding"
    shutil.copytree(tiny_model, model)
    state = tmp_path / "state"
    words = ("--python", str(python), "-p", str(port), "-b", "8", "--name", "embed", "--no-doctor")
    serve = Serve(state, "-w", str(model), *words)
    serving.append(serve)
    lines = serve.ready()
    assert f"http://127.0.0.1:{port}" in lines[0], serve.end()[1]
    assert f"http://127.0.0.1:{port}/v1/embeddings" in lines[1]
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    assert run(["check", "embed", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    size = json.loads((model / "config.json").read_text())["hidden_size"]
    assert rows["embed"]["values"]["numbers"] == [size] * 3
    # whole words of a few tokens each do not always end at the edge
    assert 0 <= rows["models"]["values"]["longest"] - rows["long"]["values"]["input"] < 16
    plan = json.loads((state / "gaudi-launch/services/embed/plan.json").read_text())
    assert plan["buckets"] is None and "files" not in plan
    ended = json.loads((state / "gaudi-launch/services/embed/state.json").read_text())
    psutil.Process(ended["pid"]).send_signal(signal.SIGKILL)
    code, err = serve.wait()
    assert code == 4 and "killed from outside" in err
    assert serve.alive() == []
