"""Ray Serve for real: Ray with HPUs that are only counted, the CPU engine or plain generation in
its replicas."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import psutil
import pytest

from gaudi_launch.commands.services.status import case
from gaudi_launch.core.engines.install.demo import demo_dir
from gaudi_launch.core.services.state import chosen
from gaudi_launch.extensions.ray.engine import IN_RAY
from gaudi_launch.extensions.ray.install import RAY
from tests.support.every_case import ONE_MORE_ENGINE
from tests.support.real_engines import PARIS, Serve, ask, streamed
from tests.support.waiting import GENEROUS, until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="session")
def ray(engine: Path) -> Path:
    """Ray's interpreter beside the embedded engine, made when it is not there."""
    RAY.setup(lambda line: print(line, file=sys.stderr))
    return RAY.python()


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def answer(port: int) -> str:
    text: str = json.loads(ask(port, model="demo"))["choices"][0]["message"]["content"]
    return text


def metric(port: int, name: str, label: str = "") -> float:
    """A figure of the engine's own page, which is passed on like everything else."""
    with build_opener(ProxyHandler({})).open(
        f"http://127.0.0.1:{port}/metrics", timeout=GENEROUS
    ) as response:
        lines = response.read().decode().splitlines()
    return float(
        next(line.split()[-1] for line in lines if line.startswith(name) and label in line)
    )


def hang_up(port: int) -> None:
    """Ask for a long streamed answer and go away after its first piece."""
    body = {
        "model": "demo",
        "prompt": "Once",
        "max_tokens": 1500,
        "stream": True,
        "ignore_eos": True,
    }
    connection = HTTPConnection("127.0.0.1", port, timeout=GENEROUS)
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    assert response.readline().startswith(b"data: ")
    assert metric(port, "vllm:num_requests_running") == 1
    finished = metric(port, "vllm:request_success_total", "length")
    response.close()
    connection.close()
    until(lambda: metric(port, "vllm:num_requests_running") == 0)
    # it was ended, it did not get to its end
    assert metric(port, "vllm:request_success_total", "length") == finished


def replicas(name: str) -> tuple[int, int]:
    found = case.read(chosen.find(name))
    assert found is not None
    return found.deployments[0].running, found.deployments[0].wanted


def test_the_cpu_engine_in_a_replica_answers_streams_and_stops(
    ray: Path, port: int, tmp_path: Path, serving: list[Serve]
) -> None:
    serve = Serve(tmp_path, "-w", "demo", "--engine", "ray-serve", "-p", str(port), "--name", "one")
    serving.append(serve)
    assert serve.ready()[0].endswith(f"demo answers at http://127.0.0.1:{port}\n")
    assert answer(port) == PARIS
    text, pieces = streamed(port)
    assert text == PARIS and pieces >= 3
    hang_up(port)
    until(lambda: replicas("one") == (1, 1))
    shown = subprocess.run(
        [sys.executable, "-m", "gaudi_launch", "status", "one"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "default: RUNNING" in shown.stdout and "1/1" in shown.stdout
    names = [" ".join(process.cmdline()) for process in serve.family]
    for part in (
        "raylet",
        "gcs_server",
        "dashboard",
        "ray::ServeReplica",
        "vllm.entrypoints",
        "VLLM::EngineCore",
    ):
        assert any(part in name for name in names), part
    code, err = serve.end()
    assert code == 130 and err.splitlines()[-1] == "Stopped; no process remains."
    assert serve.alive() == []
    state = json.loads((tmp_path / "gaudi-launch/services/one/state.json").read_text())
    assert (state["outcome"], state["facts"]["replicas_wanted"], state["facts"]["ray_hpus"]) == (
        "stopped",
        1,
        1,
    )


@pytest.fixture
def plain(
    ray: Path, port: int, tmp_path: Path, serving: list[Serve]
) -> Iterator[tuple[Serve, int]]:
    """Plain generation in two replicas, answering."""
    words = ("-w", "demo", "--engine", "ray-serve:transformers", "--replicas", "2")
    serve = Serve(tmp_path, *words, "-p", str(port), "--name", "two")
    serving.append(serve)
    serve.ready()
    until(lambda: replicas("two") == (2, 2))
    yield serve, port


@ONE_MORE_ENGINE
def test_two_replicas_of_plain_generation_and_one_of_them_killed(
    plain: tuple[Serve, int], tmp_path: Path
) -> None:
    serve, port = plain
    assert answer(port) == PARIS
    text, pieces = streamed(port)
    assert text == PARIS and pieces >= 3

    def ours() -> list[psutil.Process]:
        family = psutil.Process(serve.process.pid).children(recursive=True)
        return [p for p in family if "ServeReplica" in " ".join(p.cmdline())]

    before = ours()
    assert len(before) == 2
    before[0].send_signal(signal.SIGKILL)
    # the other one goes on answering while a new one comes
    assert answer(port) == PARIS
    until(lambda: len({p.pid for p in ours()} - {before[0].pid}) == 2 and replicas("two") == (2, 2))
    assert before[1].is_running() and answer(port) == PARIS
    # the first process is killed: Ray, its daemons and the replicas go with it
    serve.family = psutil.Process(serve.process.pid).children(recursive=True)
    head = json.loads((tmp_path / "gaudi-launch/services/two/state.json").read_text())["pid"]
    psutil.Process(head).send_signal(signal.SIGKILL)
    code, err = serve.wait()
    assert code == 4 and "killed from outside" in err
    assert serve.alive() == []


@ONE_MORE_ENGINE
@pytest.mark.parametrize("kind", ["cpu", "ray-serve:cpu"])
def test_an_engine_that_cannot_load_the_model_is_exit_4_with_its_cause(
    kind: str, ray: Path, tiny_model: Path, port: int, tmp_path: Path, serving: list[Serve]
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny_model, broken)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(
        json.dumps({**config, "architectures": ["NobodyKnowsThisForCausalLM"]})
    )
    serve = Serve(tmp_path, "-w", str(broken), "--engine", kind, "-p", str(port))
    serving.append(serve)
    code, err = serve.wait()
    assert code == 4 and "does not support this model" in err and "engine.log" in err


def test_ray_itself_accepts_our_config(ray: Path, tmp_path: Path) -> None:
    """Every key of ours is one of this release's, and our list of keys is exactly its list."""
    words = ("-w", str(demo_dir()), "--engine", "ray-serve:cpu", "--replicas", "1..3")
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_launch", "render", "ray-serve", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    script = """
import json, sys, yaml
from ray.serve import schema
from ray.serve.config import AutoscalingConfig
config = schema.ServeDeploySchema.model_validate(yaml.safe_load(sys.stdin.read()))
assert config.applications[0].deployments[0].autoscaling_config["max_replicas"] == 3
kinds = {"": schema.ServeDeploySchema, "http_options": schema.HTTPOptionsSchema,
  "logging_config": schema.LoggingConfig, "applications[]": schema.ServeApplicationSchema,
  "applications[].deployments[]": schema.DeploymentSchema,
  "applications[].deployments[].ray_actor_options": schema.RayActorOptionsSchema,
  "applications[].deployments[].autoscaling_config": AutoscalingConfig}
print(json.dumps({place: sorted(kind.model_fields) for place, kind in kinds.items()}))
"""
    theirs = subprocess.run(
        [str(ray), "-c", script],
        input=done.stdout,
        env={"PYTHONPATH": str(IN_RAY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert theirs.returncode == 0, theirs.stderr
    from gaudi_launch.extensions.ray.schema import KEYS

    assert json.loads(theirs.stdout) == {place: sorted(keys) for place, keys in KEYS.items()}
