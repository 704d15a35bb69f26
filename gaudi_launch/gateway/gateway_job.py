"""A gateway as a service: its job, and new settings for one that runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.gateway import program
from gaudi_launch.gateway.gateway_settings import Backend, GatewaySettings
from gaudi_launch.gateway.haproxy_config import gateway_files
from gaudi_launch.planning.plan import Command
from gaudi_launch.services.process.process import write_files
from gaudi_launch.services.state import store
from gaudi_launch.services.state.identity import Identity
from gaudi_launch.services.state.job import ServiceJob
from gaudi_launch.services.state.registry import find

FOLDER = "gateway"
ENGINE = f"haproxy@{program.HAPROXY}"


def gateway_job(
    name: str,
    backends: Sequence[Backend],
    settings: GatewaySettings,
    *,
    restart: str = "on-failure",
) -> ServiceJob:
    """Return the job of a gateway of this name.

    Raises LaunchError: USAGE for backends that cannot be routed to, MACHINE without the program.
    """
    folder = store.service_dir(name) / FOLDER
    # more threads than CPUs wait for each other
    usable = len(os.sched_getaffinity(0))
    files = gateway_files(
        backends,
        replace(settings, threads=min(settings.threads, usable)),
        program=str(program.needed()),
        python=str(program.environment_dir() / "bin" / "python"),
        folder=folder,
        services=store.services_dir(),
    )
    return ServiceJob(
        name=name,
        model=", ".join(backend.model for backend in backends),
        model_path=", ".join(backend.model for backend in backends),
        engine=ENGINE,
        url=settings.url,
        command=Command(
            argv=files.argv, env={}, unset=("VLLM_API_KEY", "HF_TOKEN"), files=files.files
        ),
        bind=False,
        restart=restart,
        health_only=True,
    )


def renew(name: str, backends: Sequence[Backend], settings: GatewaySettings) -> ServiceJob:
    """Give a running gateway new models, keys or limits without ending a request.

    A restart uses them, too. The address and TLS cannot change. Raises LaunchError: USAGE for an
    unknown name, another address or settings that cannot be used, FAILED where it does not run.
    """
    service = find(name)
    path = service.folder / "job.json"
    before = ServiceJob.from_json(store.read(service.folder, "job.json"), path)
    job = gateway_job(name, backends, settings, restart=before.restart)
    if job.url != before.url:
        raise LaunchError(
            "gateway.other_address", ExitCode.USAGE, name=name, found=job.url, known=before.url
        )
    process = Identity.from_json(service.state.get("engine_process"))
    if not service.alive or process is None:
        raise LaunchError("gateway.not_running", ExitCode.FAILED, name=name)
    try:
        write_files(job.command.files)
    except OSError as error:
        raise LaunchError("gateway.not_written", ExitCode.FAILED, why=str(error)) from None
    if not store.write(service.folder, "job.json", job.to_json()):
        raise LaunchError("gateway.not_written", ExitCode.FAILED, why=f"{path}: {os.strerror(28)}")
    process.send(signal.SIGHUP)
    return job
