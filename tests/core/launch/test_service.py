"""A service by the Python API: an engine's stand-in, started, waited for and stopped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch import LaunchError, LaunchOptions, Service, serve
from gaudi_launch.core.base.errors import ExitCode
from tests.support.machines import link_tree
from tests.support.processes import TRIVIAL, write_engine_python
from tests.support.serve import write_model
from tests.support.waiting import GENEROUS


@pytest.fixture
def options(
    tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LaunchOptions]:
    """Options of a model on a machine in a folder, with an engine that starts in a moment."""
    machine = tmp_path / "machine"
    link_tree("hls2", machine)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(machine))
    monkeypatch.setenv("PATH", f"{machine / 'bin'}:{os.environ['PATH']}")
    python = write_engine_python(tmp_path / "engine-python", f"{sys.executable} {TRIVIAL}")
    model = write_model(tmp_path / "Small")
    yield LaunchOptions(str(model), cards=2, port=30777, python=str(python))


def test_started_waited_for_and_stopped(
    options: LaunchOptions, capfd: pytest.CaptureFixture[str]
) -> None:
    with serve(options, name="api", check_machine=False) as service:
        service.wait_ready(GENEROUS)
        assert (service.name, service.status, service.url) == (
            "api",
            "ready",
            "http://127.0.0.1:30777",
        )
        assert len(service.plan.placement.modules) == 2
        assert service.log.stat().st_size > 0
    assert service.status == "stopped"
    service.stop()
    assert capfd.readouterr() == ("", "")


def test_a_name_that_runs_is_refused_and_still_runs(options: LaunchOptions) -> None:
    with serve(options, name="api", check_machine=False) as service:
        with pytest.raises(LaunchError) as refused:
            serve(options, name="api", check_machine=False)
        assert refused.value.exit_code in (ExitCode.USAGE, ExitCode.MACHINE)
        service.wait_ready(GENEROUS)
        assert service.status == "ready"


def failed(service: Service, timeout: float) -> LaunchError:
    with pytest.raises(LaunchError) as error:
        service.wait_ready(timeout)
    return error.value


def test_time_that_is_over_leaves_the_service(
    options: LaunchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIVIAL_DO", "hang")
    with serve(options, name="api", check_machine=False) as service:
        error = failed(service, 0.3)
        assert (error.id, error.exit_code) == ("services.not_yet", ExitCode.FAILED)
        assert service.status not in ("failed", "stopped", "lost")


def test_an_engine_that_dies_is_an_error_with_its_cause(
    options: LaunchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIVIAL_DO", "die")
    service = serve(options, name="api", check_machine=False)
    error = failed(service, GENEROUS)
    assert (error.id, error.exit_code) == ("serve.died", ExitCode.ENGINE)
    assert service.status == "failed"
    service.stop()
