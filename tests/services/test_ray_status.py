"""Ray Serve's part of the services: its log lines, its state in the state file, its status read
back over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.services import ray_status
from gaudi_launch.services.diagnosis.diagnose import diagnose
from gaudi_launch.services.log.follow import Follower
from gaudi_launch.services.probe import ProbeResult
from gaudi_launch.services.ray_status import Deployment, RayStatus, RunningRay
from gaudi_launch.services.state import store

# a start of ours, two replicas, stopped (shortened); the replicas' lines are those of the engine
LOG = """\
2026-11-21 08:06:42,331\tINFO worker.py:2029 -- Started a local Ray instance.
gaudi-launch ray: Ray 2.60.0 with 2 HPU, dashboard http://127.0.0.1:8265
gaudi-launch ray: token /tmp/gaudi-ray-x/token
gaudi-launch ray: application default DEPLOYING
gaudi-launch ray: deployment Engine UPDATING, replicas 0/2 running
(Replica1) (Worker pid=5) INFO 11-21 08:08:37 [cpu_model_runner.py:68] Starting to load model /m...
(ServeReplica:default:Engine pid=9) ValueError: not ours to judge
"""
LATER = """\
(Worker pid=28618) INFO 11-21 08:08:37 [cpu_model_runner.py:68] Starting to load model /m...
Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:07<00:00,  7.37s/it]
INFO:     Application startup complete.
gaudi-launch ray: deployment Engine HEALTHY, replicas 2/2 running
"""


def test_a_start_is_followed_by_its_first_replica() -> None:
    follower = Follower()
    progress = follower.feed(LOG, 1.0)
    assert (progress.phase, dict(progress.facts)) == (
        "start",
        {
            "ray_dashboard": "http://127.0.0.1:8265",
            "ray_hpus": 2,
            "ray_token": "/tmp/gaudi-ray-x/token",
            "replicas_running": 0,
            "replicas_wanted": 2,
        },
    )
    progress = follower.feed(LATER, 2.0)
    assert [phase.name for phase in progress.phases] == ["start", "load", "ready"]
    assert progress.facts["replicas_running"] == 2
    assert follower.feed("gaudi-launch ray: Shutting down\n", 3.0).phase == "stopping"


def test_a_dashboard_elsewhere_is_not_believed() -> None:
    progress = Follower().feed(
        "gaudi-launch ray: Ray 2.60.0 with 2 HPU, dashboard http://evil.example:80\n", 1.0
    )
    assert dict(progress.facts) == {}


def test_a_failed_start_keeps_the_phase_in_which_it_failed() -> None:
    log = LOG + (
        "(Worker pid=2) INFO Starting to load model /m\n"
        "ValueError: No supported config format found\n"
    )
    log += (
        "gaudi-launch ray: FAILED: the replica failed to start\n"
        "gaudi-launch ray: ending what was started\n"
    )
    found = diagnose(log, exit_status=1)
    assert (found.failed, found.phase) == (True, "load")


def test_the_guides_own_log_is_known() -> None:
    guide = (
        "INFO 2025-03-03 06:07:30,359 serve 162730 -- Application 'default' is ready at "
        "http://127.0.0.1:8000/.\n"
    )
    assert Follower().feed(guide, 1.0).phase == "ready"


ANSWER: dict[str, Any] = {
    "applications": {
        "default": {
            "status": "RUNNING",
            "message": "",
            "deployments": {
                "Engine": {
                    "status": "HEALTHY",
                    "message": "",
                    "target_num_replicas": 2,
                    "replicas": [{"state": "RUNNING"}, {"state": "STARTING"}],
                }
            },
        }
    }
}


@pytest.fixture
def dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A service's state file and a server that stands where its dashboard does."""
    seen: dict[str, Any] = {"answer": json.dumps(ANSWER).encode(), "status": 200}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen["asked"] = (self.path, self.headers["Authorization"])
            self.send_response(seen["status"])
            self.end_headers()
            self.wfile.write(seen["answer"])

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    token = tmp_path / "token"
    token.write_text("sesame\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        url = f"http://127.0.0.1:{server.server_port}"
        ray = {"ray_dashboard": url, "ray_token": str(token)}
        document = {"url": "http://127.0.0.1:1", "phase": "ready", "facts": ray}
        store.write(store.make_dir("one"), "state.json", document)
        store.write(store.make_dir("plain"), "state.json", {"phase": "ready"})
        store.write(store.make_dir("gone"), "state.json", {**document, "phase": "stopped"})
        yield seen
        server.shutdown()


def test_the_status_is_read_back(dashboard: dict[str, Any]) -> None:
    found = ray_status.read(ray_status.running(None))
    assert dashboard["asked"] == ("/api/serve/applications/", "Bearer sesame")
    assert (found.service, found.application, found.status) == ("one", "default", "RUNNING")
    assert found.deployments == (
        ray_status.Deployment("Engine", "HEALTHY", 1, 2, "", ("RUNNING", "STARTING")),
    )


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (401, b"no"),
        (200, b""),
        (200, b"[]"),
        (200, b'{"applications": {}}'),
        (200, b'{"applications": {"a": 1}}'),
    ],
)
def test_an_answer_that_is_none_is_said(
    dashboard: dict[str, Any], status: int, answer: bytes
) -> None:
    dashboard.update(status=status, answer=answer)
    with pytest.raises(LaunchError) as caught:
        ray_status.read(ray_status.running("one"))
    assert (caught.value.id, caught.value.exit_code) == ("ray.no_status", ExitCode.FAILED)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("name", ["gone", "plain", "nobody", "../one"])
def test_only_a_running_one_is_asked(dashboard: dict[str, Any], name: str) -> None:
    with pytest.raises(LaunchError) as caught:
        ray_status.running(name)
    assert caught.value.exit_code == ExitCode.USAGE


def test_of_two_running_ones_the_user_chooses(dashboard: dict[str, Any]) -> None:
    store.write(
        store.make_dir("two"),
        "state.json",
        store.read(store.service_dir("one"), "state.json") or {},
    )
    with pytest.raises(LaunchError) as caught:
        ray_status.running(None)
    assert "one, two" in str(caught.value)
    assert ray_status.running("two").name == "two"


TOKEN = "secret-token"
STATUS = {
    "applications": {
        "default": {
            "status": "RUNNING",
            "message": None,
            "deployments": {
                "Router": {"status": "HEALTHY", "message": "ok", "target_num_replicas": 1},
                "Engine": {
                    "status": "UPDATING",
                    "target_num_replicas": None,
                    "replicas": [{"state": "RUNNING"}, {"state": "STARTING"}],
                },
            },
        }
    }
}


def test_the_status_of_each_deployment_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def ask(url: str, seconds: float, token: str, most_bytes: int) -> ProbeResult:
        asked.append((url, seconds, token))
        return ProbeResult(200, json.dumps(STATUS).encode())

    monkeypatch.setattr(ray_status, "ask", ask)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    service = RunningRay("chat", "http://a:1", "http://127.0.0.1:8265", tmp_path / "token")
    assert ray_status.read(service) == RayStatus(
        "chat",
        "http://a:1",
        "http://127.0.0.1:8265",
        "default",
        "RUNNING",
        "",
        (
            Deployment("Engine", "UPDATING", 1, 2, "", ("RUNNING", "STARTING")),
            Deployment("Router", "HEALTHY", 0, 1, "ok", ()),
        ),
    )
    assert asked == [("http://127.0.0.1:8265/api/serve/applications/", 20.0, TOKEN)]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ProbeResult(0, b"", "timeout"), "timeout"),
        (ProbeResult(403, b"{}"), "HTTP 403"),
        (ProbeResult(200, b"[]"), "no application"),
        (ProbeResult(200, b'{"applications": {}}'), "no application"),
    ],
)
def test_an_unexpected_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: ProbeResult, why: str
) -> None:
    monkeypatch.setattr(ray_status, "ask", lambda *words, **more: answer)
    (tmp_path / "token").write_text(TOKEN)
    service = RunningRay("chat", "u", "http://127.0.0.1:8265", tmp_path / "token")
    with pytest.raises(LaunchError) as caught:
        ray_status.read(service)
    assert (caught.value.id, caught.value.exit_code, caught.value.text.values) == (
        "ray.no_status",
        ExitCode.FAILED,
        {"dashboard": "http://127.0.0.1:8265", "why": why},
    )
