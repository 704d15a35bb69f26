"""A gateway as a service: its job, and new settings for one that runs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.gateway import program
from gaudi_launch.gateway.gateway_settings import Backend, GatewaySettings
from gaudi_launch.gateway.haproxy_config import ANSWERER, gateway_files
from gaudi_launch.planning.plan import Command
from gaudi_launch.services.process.process import write_files
from gaudi_launch.services.state import store
from gaudi_launch.services.state.identity import Identity
from gaudi_launch.services.state.job import ServiceJob
from gaudi_launch.services.state.registry import find

FOLDER = "gateway"
# a loaded machine takes seconds to fork; the configuration was checked before
_NEW_WORKER_SECONDS = 30.0
_POLL_SECONDS = 0.05


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
        engine=f"haproxy@{program.version()}",
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

    Return when new requests are served by them. A restart uses them, too. The address and TLS
    cannot change. Raises LaunchError: USAGE for an unknown name, another address or settings that
    cannot be used, FAILED where it does not run, or does not take them.
    """
    before = _job(name)
    job = gateway_job(name, backends, settings, restart=before.restart)
    if job.url != before.url:
        raise LaunchError(
            "gateway.other_address", ExitCode.USAGE, name=name, found=job.url, known=before.url
        )
    _take(name, job.command.files, job)
    return job


def drain(name: str, services: Collection[str]) -> None:
    """Give these services no new request; all others get theirs.

    Until the next call, and until a restart of the gateway. Raises LaunchError as `renew`.
    """
    files = {}
    for path, content in _job(name).command.files.items():
        for service in services:
            content = re.sub(
                rf"(?m)^    server {re.escape(service)} .*$", r"\g<0> disabled", content
            )
        files[path] = content
    _take(name, files)


def _job(name: str) -> ServiceJob:
    """Return the job of a gateway. Raises LaunchError (USAGE) for an unknown name."""
    folder = find(name).folder
    return ServiceJob.from_json(store.read(folder, "job.json"), folder / "job.json")


def _take(name: str, files: Mapping[str, str], job: ServiceJob | None = None) -> None:
    """Make a running gateway read these files, and record a new job."""
    service = find(name)
    process = Identity.from_json(service.state.get("engine_process"))
    if not service.alive or process is None:
        raise LaunchError("gateway.not_running", ExitCode.FAILED, name=name)
    try:
        write_files(files)
    except OSError as error:
        raise LaunchError("gateway.not_written", ExitCode.FAILED, why=str(error)) from None
    if job is not None and not store.write(service.folder, "job.json", job.to_json()):
        why = f"{service.folder / 'job.json'}: {os.strerror(28)}"
        raise LaunchError("gateway.not_written", ExitCode.FAILED, why=why)
    before = _workers(process.pid)
    process.send(signal.SIGHUP)
    _await_new(name, process.pid, before)


def routed_names(name: str) -> dict[str, tuple[str, ...]]:
    """Return the names of each model that a gateway routes, if it exists."""
    document = store.read(store.service_dir(name) / FOLDER, ANSWERER) or {}
    models = document.get("models")
    if not isinstance(models, list):
        return {}
    return {str(each["model"]): (each["model"], *each["aliases"]) for each in models}


def _workers(pid: int) -> dict[int, set[int]]:
    """Return the workers of each HAProxy of a gateway's process, by the master's pid."""
    import psutil

    found: dict[int, set[int]] = {}
    with contextlib.suppress(psutil.Error):
        for master in psutil.Process(pid).children():
            found[master.pid] = {worker.pid for worker in master.children()}
    return found


def _await_new(name: str, pid: int, before: dict[int, set[int]]) -> None:
    """Wait until each HAProxy has a new worker.

    From then on it listens, and the old one no longer does. Raises LaunchError (FAILED) where none
    comes.
    """
    deadline = time.monotonic() + _NEW_WORKER_SECONDS
    while time.monotonic() < deadline:
        now = _workers(pid)
        if now and all(workers - before.get(master, set()) for master, workers in now.items()):
            return
        time.sleep(_POLL_SECONDS)
    raise LaunchError("gateway.not_taken", ExitCode.FAILED, name=name)
