"""A plan that is started in a container, not by an interpreter of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gaudi_launch.core.engines.docker_command import Limits, container_name
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.planning.container import PODMAN
from gaudi_launch.core.planning.plan import Command, Plan
from gaudi_launch.core.render.docker import run_words
from gaudi_launch.core.render.plan_container import container_of


@dataclass(frozen=True)
class ContainerPlace:
    """The choices for a plan that is run in a container.

    ``program`` is docker or podman, ``user`` that of a container without cards as ``UID:GID`` ("":
    the image's own), ``limits`` those that the program can set, ``image`` another image.
    """

    program: str
    user: str = ""
    limits: Limits | None = None
    image: str | None = None


def in_container(
    plan: Plan, host: Host, environment: Mapping[str, str], place: ContainerPlace
) -> Plan:
    """Return the plan with a container's command as its command.

    An engine that is a container of this program already is unchanged. Raises LaunchError as
    `container_of` does.
    """
    planned = plan.container
    if planned is not None and planned.program == place.program and place.image is None:
        return plan
    container = container_of(plan, host, environment=environment, image=place.image)
    container = replace(container, program=place.program)
    if container.confined:
        container = replace(container, user=place.user)
    port = int(plan.url.rpartition(":")[2])
    name = container.name or container_name(plan.engine.name, str(plan.model.get("path", "")), port)
    command = Command(
        # podman needs systemd for health checks, and the launcher has its own
        argv=run_words(
            container,
            name,
            limits=place.limits if container.modules else None,
            with_health=place.program != PODMAN,
        ),
        env={},
        cpus=plan.command.cpus,
        files=plan.command.files,
        container=replace(container, name=name),
    )
    return replace(plan, command=command)
