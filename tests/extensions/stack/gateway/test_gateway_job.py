"""The job of a gateway, and what new settings it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.install.marker import mark
from gaudi_launch.core.services.state import registry, store
from gaudi_launch.core.services.state.job import ServiceJob, read_job
from gaudi_launch.extensions.stack.gateway import program
from gaudi_launch.extensions.stack.gateway.gateway_job import gateway_job, renew, routed_names
from gaudi_launch.extensions.stack.gateway.gateway_settings import (
    Backend,
    GatewaySettings,
)
from tests.support.refusals import failing

pytestmark = pytest.mark.usefixtures("plain_english")

BACKENDS = (Backend("a", {"http://127.0.0.1:9201": ""}),)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make an environment that counts as complete."""
    monkeypatch.setenv("GAUDI_LAUNCH_ENGINES_DIR", str(tmp_path / "engines"))
    folder = program.GATEWAY.environment()
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "haproxy").write_text("", encoding="utf-8")
    mark(folder, {"haproxy": program.HAPROXY})
    return folder


def test_a_gateway_is_restarted_and_ready_by_its_health() -> None:
    job = gateway_job("gw", BACKENDS, GatewaySettings(port=8123))
    assert (job.restart, job.health_only, job.bind, job.modules) == ("on-failure", True, False, ())
    assert (job.url, job.engine, job.model) == ("http://127.0.0.1:8123", "haproxy@2.8.25", "a")
    store.write(store.make_dir("gw"), "job.json", job)
    assert read_job(store.service_dir("gw")) == job


def test_it_runs_from_its_environment_which_is_in_use_then(installed: Path) -> None:
    job = gateway_job("gw", BACKENDS, GatewaySettings())
    assert Path(job.command.argv[0]).parent == installed / "bin"
    assert set(job.command.unset) == {"VLLM_API_KEY", "HF_TOKEN"}


def test_a_job_names_its_models_and_has_no_more_threads_than_cpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 5})
    two = (*BACKENDS, Backend("b", {"http://127.0.0.1:9202": ""}))
    job = gateway_job("gw", two, GatewaySettings(), restart="no")
    folder = store.service_dir("gw") / "gateway"
    assert (job.name, job.model, job.model_path, job.restart) == ("gw", "a, b", "a, b", "no")
    assert "nbthread 2\n" in job.command.files[str(folder / "haproxy.cfg")]
    assert job.command.argv == (
        str(program.GATEWAY.python()),
        str(folder / "gateway_process.py"),
        str(folder / "gateway.json"),
    )
    document = json.loads(job.command.files[str(folder / "gateway.json")])
    assert document["program"] == str(program.GATEWAY.program())
    assert document["services"] == str(store.services_dir())


def recorded(job: ServiceJob) -> None:
    with registry.hold("gw"):
        store.write(store.service_dir("gw"), "job.json", job)
        store.write(
            store.service_dir("gw"),
            "state.json",
            {"name": "gw", "phase": "stopped", "outcome": "stopped"},
        )


def test_the_names_that_a_gateway_routes() -> None:
    assert routed_names("gw") == {}
    folder = store.service_dir("gw") / "gateway"
    folder.mkdir(parents=True)
    document = {"models": [{"model": "a", "aliases": ["x", "y"]}, {"model": "b", "aliases": []}]}
    (folder / "gateway.json").write_text(json.dumps(document))
    assert routed_names("gw") == {"a": ("a", "x", "y"), "b": ("b",)}
    (folder / "gateway.json").write_text('{"models": 5}')
    assert routed_names("gw") == {}


def test_a_job_of_an_earlier_version_is_of_an_engine() -> None:
    document = codec.write(gateway_job("gw", BACKENDS, GatewaySettings()))
    del document["health_only"]
    store.write(store.make_dir("gw"), "job.json", document)
    assert read_job(store.service_dir("gw")).health_only is False


def test_new_settings_are_for_a_running_gateway_of_the_same_address() -> None:
    with failing("services.unknown", ExitCode.USAGE):
        # another user of this machine may run a gw
        renew("never-started", BACKENDS, GatewaySettings())
    job = gateway_job("gw", BACKENDS, GatewaySettings())
    recorded(job)
    with failing("gateway.other_address", ExitCode.USAGE) as raised:
        renew("gw", BACKENDS, GatewaySettings(port=1234))
    assert raised.value.text.values == {
        "name": "gw",
        "found": "http://127.0.0.1:1234",
        "known": "http://127.0.0.1:8000",
    }
    with failing("gateway.not_running", ExitCode.FAILED):
        renew("gw", BACKENDS, GatewaySettings())
    assert not (store.service_dir("gw") / "gateway").exists()
