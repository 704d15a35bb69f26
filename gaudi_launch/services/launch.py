"""Before an engine starts: what is checked, and a service handed to a launcher of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.registry import in_container
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.models.records import Model
from gaudi_launch.paths import machine_root
from gaudi_launch.planning.engine import Engine
from gaudi_launch.planning.request import Request
from gaudi_launch.services import detach, registry
from gaudi_launch.services.containers import check_docker
from gaudi_launch.services.job import ServiceJob
from gaudi_launch.services.ready import listener, port_free
from gaudi_launch.services.reservation import reserve


def check_engine(engine: Engine, installed: Installed | None) -> None:
    """Is the planned engine what the interpreter has? Raises LaunchError (MACHINE). An engine in a container is in
    no interpreter: its image is looked for when docker is (`containers.make_ready`)."""
    inner = getattr(engine, "inner", None)
    if inner is not None:
        _check_around(inner, installed)
        return
    identity = engine.identity
    if in_container(identity.name):
        return
    wanted = identity.label
    if installed is None or not installed.engine:
        where = installed.python if installed is not None else "PATH"
        raise LaunchError("serve.no_engine", ExitCode.MACHINE, python=where, engine=wanted)
    if installed.engine != wanted:
        raise LaunchError(
            "serve.other_engine", ExitCode.MACHINE, python=installed.python, found=installed.engine, engine=wanted
        )


def _check_around(inner: Engine, installed: Installed | None) -> None:
    """Ray Serve and the engine inside it. Raises LaunchError (MACHINE)."""
    if installed is None or "ray" not in installed.packages:
        raise LaunchError("ray.missing", ExitCode.MACHINE, python=installed.python if installed else "PATH")
    if inner.identity.name != "transformers":
        check_engine(inner, installed)
    elif "transformers" not in installed.packages:
        raise LaunchError("ray.no_transformers", ExitCode.MACHINE, python=installed.python)


def check_model(model: Model, request: Request) -> None:
    """Is the model's folder whole? Raises LaunchError (MODEL) unless forced."""
    if model.files_missing and not request.force:
        shown = ", ".join(model.files_missing[:5]) + (" ..." if len(model.files_missing) > 5 else "")
        raise LaunchError(
            "serve.model_incomplete", ExitCode.MODEL, path=model.path, count=len(model.files_missing), files=shown
        )


def check_port(url: str) -> None:
    """Is the port free? Raises LaunchError (MACHINE), naming who listens where that can be seen."""
    host, port = address(url)
    try:
        free = port_free(host, port)
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("serve.bad_host", ExitCode.MACHINE, host=host, port=port, why=why) from None
    if not free:
        raise LaunchError("serve.port_taken", ExitCode.MACHINE, port=port, who=listener(port) or "-")


def address(url: str) -> tuple[str, int]:
    """Host and port of a base URL."""
    host, _, port = url.removeprefix("http://").removeprefix("https://").rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0


def start_detached(job: ServiceJob, plan: Mapping[str, Any] | None, environment: Mapping[str, str]) -> None:
    """Hold the name and the cards of a job, and hand it to a launcher of its own.

    Raises LaunchError when the name, a card or the port is taken, or docker cannot start the job's container.
    """
    if job.container:
        check_docker(needs_cards=bool(job.modules))
    with registry.hold(job.name) as name, reserve(job.modules, machine_root()) as cards:
        check_port(job.url)
        detach.spawn(job, plan, environment, (name, *cards))
