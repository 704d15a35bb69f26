"""Ray Serve's part of the services: its log lines, its state in the state file, its status read
back over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.commands.services.status.case import Deployment, RayStatus, read
from gaudi_launch.core.services.diagnosis.diagnose import diagnose
from gaudi_launch.core.services.log.follow import Follower
from gaudi_launch.core.services.state.registry import ServiceRecord
from tests.support.http_answers import server

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


PATH = "/api/serve/applications/"


def service(url: object, token: Path) -> ServiceRecord:
    facts = {"ray_dashboard": url, "ray_token": str(token)}
    return ServiceRecord("chat", token.parent, {"phase": "ready", "facts": facts}, True)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("sesame\n")
    return tmp_path / "token"


def test_the_state_of_each_deployment_is_read(token: Path) -> None:
    with server({PATH: (200, STATUS)}) as (url, asked):
        assert read(service(url, token)) == RayStatus(
            url,
            "default",
            "RUNNING",
            "",
            (
                Deployment("Engine", "UPDATING", 1, 2, "", ("RUNNING", "STARTING")),
                Deployment("Router", "HEALTHY", 0, 1, "ok", ()),
            ),
        )
    assert asked == [(PATH, None, "Bearer sesame")]


@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (401, b"no", "HTTP 401"),
        (200, b"", "no application"),
        (200, b"[]", "no application"),
        (200, b'{"applications": {}}', "no application"),
        (200, b'{"applications": {"a": 1}}', "no application"),
    ],
)
def test_an_unexpected_answer_is_named(token: Path, status: int, body: bytes, trouble: str) -> None:
    with server({PATH: (status, body)}) as (url, _):
        assert read(service(url, token)) == RayStatus(url, trouble=trouble)


def test_a_dashboard_that_cannot_be_asked_is_named(token: Path) -> None:
    closed = "http://127.0.0.1:1"
    assert read(service(closed, token)) == RayStatus(
        closed, trouble="[Errno 111] Connection refused"
    )
    token.unlink()
    with server({PATH: (200, STATUS)}) as (url, asked):
        assert read(service(url, token)) == RayStatus(
            url, trouble=f"{token}: No such file or directory"
        )
    assert asked == []


@pytest.mark.parametrize("state", [{}, {"facts": 1}, {"facts": {"ray_dashboard": "http://h"}}])
def test_a_service_without_ray_has_no_state_of_it(state: dict[str, Any]) -> None:
    assert read(ServiceRecord("chat", Path("/s"), state, True)) is None
