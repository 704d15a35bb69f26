"""Before an engine starts: what is checked, and a service handed to a launcher of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.models.records import Model
from gaudi_launch.paths import machine_root
from gaudi_launch.planning.request import Request
from gaudi_launch.services import detach, registry
from gaudi_launch.services.containers import check_docker
from gaudi_launch.services.job import ServiceJob
from gaudi_launch.services.ready import listener, port_free
from gaudi_launch.services.reservation import reserve


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
