"""Use cases of a gateway: its launch as a service, and new settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gaudi_launch.extensions.stack.gateway.keys_file import check_access

if TYPE_CHECKING:
    from gaudi_launch.core.services.state.job import ServiceJob
    from gaudi_launch.extensions.stack.gateway.gateway_settings import Backend, GatewaySettings


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
    from gaudi_launch.core.services.process.detach import start_detached
    from gaudi_launch.extensions.stack.gateway.gateway_job import gateway_job

    check_access(settings)
    job = gateway_job(name, backends, settings, restart=restart)
    start_detached(job, os.environ)
    return job


def renew(name: str, backends: Sequence[Backend], settings: GatewaySettings) -> ServiceJob:
    """Give a running gateway new models, keys or limits; no request is ended.

    Raises LaunchError; the running one keeps its settings then.
    """
    from gaudi_launch.extensions.stack.gateway import gateway_job

    check_access(settings)
    return gateway_job.renew(name, backends, settings)
