"""A gateway as a service: its job, and new settings for one that runs."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.services.process.detach import start_detached
from gaudi_launch.core.services.process.process import write_files
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.core.services.state.identity import identity_in
from gaudi_launch.core.services.state.job import ServiceJob, read_job
from gaudi_launch.core.services.state.registry import ServiceRecord
from gaudi_launch.extensions.stack.gateway import program, running
from gaudi_launch.extensions.stack.gateway.gateway_settings import Backend, GatewaySettings
from gaudi_launch.extensions.stack.gateway.haproxy_config import ANSWERER, gateway_files
from gaudi_launch.extensions.stack.gateway.keys_file import check_access
from gaudi_launch.extensions.stack.gateway.running import FOLDER
from gaudi_launch.extensions.stack.gateway.runtime.gateway_process import (
    digest_of,
    tls_in,
    users_in,
)

_log = logging.getLogger(__name__)

# a loaded machine takes seconds to fork; the configuration was checked before
_TAKEN_SECONDS = 30.0
_AGAIN_SECONDS = 3.0
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
        program=str(program.GATEWAY.needed()),
        python=str(program.GATEWAY.python()),
        folder=folder,
        services=store.services_dir(),
    )
    return ServiceJob(
        name=name,
        model=", ".join(backend.model for backend in backends),
        model_path=", ".join(backend.model for backend in backends),
        engine=f"haproxy@{program.GATEWAY.version()}",
        url=settings.url,
        command=Command(
            argv=files.argv, env={}, unset=("VLLM_API_KEY", "HF_TOKEN"), files=files.files
        ),
        bind=False,
        restart=restart,
        health_only=True,
    )


def start(
    name: str,
    backends: Sequence[Backend],
    settings: GatewaySettings,
    *,
    restart: str = "on-failure",
) -> ServiceJob:
    """Start a gateway as a detached service; return its job before it answers.

    `core.launch.waiting.until_ready` waits for it. Raises LaunchError; nothing is started then.
    """
    check_access(settings)
    job = gateway_job(name, backends, settings, restart=restart)
    start_detached(job, os.environ)
    return job


def renew(name: str, backends: Sequence[Backend], settings: GatewaySettings) -> ServiceJob:
    """Give a running gateway new models, keys or limits without ending a request.

    Return when new requests are served by them. A restart uses them, too. The address and TLS
    cannot change. Raises LaunchError: USAGE for an unknown name, another address or settings that
    cannot be used, FAILED where it does not run, or does not take them; it keeps what it has then.
    """
    check_access(settings)
    before = _job(name)
    job = gateway_job(name, backends, settings, restart=before.restart)
    if job.url != before.url:
        raise LaunchError(
            "gateway.other_address", ExitCode.USAGE, name=name, found=job.url, known=before.url
        )
    service = find(name)
    if not service.alive:
        raise LaunchError("gateway.not_running", ExitCode.FAILED, name=name)
    try:
        _serve(service, job)
    except LaunchError:
        # a restart must not find what the running one did not take
        store.write(service.folder, "job.json", before)
        _hand_over(name, before)
        raise
    return job


def _job(name: str) -> ServiceJob:
    """Return the job of a gateway. Raises LaunchError (USAGE) for an unknown name."""
    folder = find(name).folder
    return read_job(folder)


def _serve(service: ServiceRecord, job: ServiceJob) -> None:
    """Record a gateway's job, and wait until each HAProxy serves with it.

    The record is first: a restart from here on uses it. Raises LaunchError (FAILED).
    """
    name = job.name
    if not store.write(service.folder, "job.json", job):
        why = f"{service.folder / 'job.json'}: {os.strerror(28)}"
        raise LaunchError("gateway.not_written", ExitCode.FAILED, why=why)
    begun = time.monotonic()
    handed = -math.inf
    while not is_current(name):
        now = time.monotonic()
        if now - begun > _TAKEN_SECONDS:
            raise LaunchError("gateway.not_taken", ExitCode.FAILED, name=name)
        if now - handed > _AGAIN_SECONDS:
            # again for one that was just being restarted
            _hand_over(name, job)
            handed = now
        time.sleep(_POLL_SECONDS)


def _hand_over(name: str, job: ServiceJob) -> None:
    """Write a gateway's files, and make its process read them, if it runs."""
    try:
        write_files(job.command.files)
    except OSError as error:
        raise LaunchError("gateway.not_written", ExitCode.FAILED, why=str(error)) from None
    process = identity_in(find(name).state, "engine_process")
    if process is not None:
        process.send(signal.SIGHUP)


def is_current(name: str) -> bool:
    """Return True where each HAProxy of a gateway serves all that was applied last.

    Its files, keys and TLS files are compared by content.
    """
    try:
        wanted = _digest(_job(name))
    except (OSError, ValueError, KeyError) as error:
        _log.debug("the files of %s cannot be compared: %s", name, error)
        return False
    if set(running.digests(name)) != {wanted}:
        return False
    return all(each.status != "MAINT" for each in running.routed_engines(name).values())


def _digest(job: ServiceJob) -> str:
    """Return the digest that HAProxy shows when it serves with a job."""
    texts = {Path(path).name: content for path, content in job.command.files.items()}
    given = parse_json(texts[ANSWERER])
    users, tls = users_in(given["keys_file"]), tls_in(given["tls"])
    return digest_of(texts[ANSWERER], users, tls, lambda name: texts[name].encode())


def routed_names(name: str) -> dict[str, tuple[str, ...]]:
    """Return the names of each model that a gateway routes, if it exists."""
    document = store.read(store.service_dir(name) / FOLDER, ANSWERER) or {}
    models = document.get("models")
    if not isinstance(models, list):
        return {}
    return {str(each["model"]): (each["model"], *each["aliases"]) for each in models}
