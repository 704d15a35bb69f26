"""A plan that is started in a container, not by an interpreter of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gaudi_launch.engines.docker_command import container_name
from gaudi_launch.host.hardware import Host
from gaudi_launch.planning.plan import Command, Plan
from gaudi_launch.render.docker import run_words
from gaudi_launch.render.plan_container import container_of


def in_docker(plan: Plan, host: Host, environment: Mapping[str, str], image: str | None) -> Plan:
    """Return the plan with a docker command as its command.

    If its engine is a container already, it is unchanged. Raises LaunchError as `container_of`
    does.
    """
    if plan.container is not None and image is None:
        return plan
    container = container_of(plan, host, environment=environment, image=image)
    port = int(plan.url.rpartition(":")[2])
    name = container.name or container_name(plan.engine.name, str(plan.model.get("path", "")), port)
    command = Command(
        argv=run_words(container, name),
        env={},
        cpus=plan.command.cpus,
        files=plan.command.files,
        container=replace(container, name=name),
    )
    return replace(plan, command=command)
