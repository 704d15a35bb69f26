"""A plan whose command is that of a container."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.engines.docker_command import container_name
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.planning.plan import Command, Plan
from gaudi_launch.core.render.docker import run_words
from gaudi_launch.core.render.in_container import ContainerPlace, in_container
from gaudi_launch.core.render.plan_container import container_of
from tests.support.plans import planned

PLAN, HOST = planned()
PLAN = replace(PLAN, command=replace(PLAN.command, files={"/f": "text"}))
EXPORTED = {"VLLM_API_KEY": "k"}
LIMITS = {"nofile": (1, 2)}


def expected(place: ContainerPlace, container: Container, *, health: bool, plan: Plan) -> Plan:
    port = int(plan.url.rpartition(":")[2])
    name = container_name(plan.engine.name, str(plan.model["path"]), port)
    limits = LIMITS if container.modules else None
    command = Command(
        argv=run_words(container, name, limits=limits, with_health=health),
        env={},
        cpus=plan.command.cpus,
        files=plan.command.files,
        container=replace(container, name=name),
    )
    return replace(plan, command=command)


@pytest.mark.parametrize(("program", "health"), [("docker", True), ("podman", False)])
def test_a_plan_in_a_container(program: str, health: bool) -> None:
    place = ContainerPlace(program, user="5:6", limits=LIMITS, image="own/image:1")
    found = in_container(PLAN, HOST, EXPORTED, place)
    made = container_of(PLAN, HOST, environment=EXPORTED, image="own/image:1")
    container = replace(made, program=program)
    assert container.modules and container.secrets == ("VLLM_API_KEY",)
    assert found == expected(place, container, health=health, plan=PLAN)
    assert any(word.startswith("--health-cmd=") for word in found.command.argv) == health
    # the same again is already there
    same = replace(place, image=None)
    assert in_container(found, HOST, EXPORTED, same) is found
    again = in_container(found, HOST, EXPORTED, replace(place, image="another:2"))
    assert again.container is not None and again.container.image == "another:2"
    assert again.container.name == found.container.name  # type: ignore[union-attr]


def test_a_container_without_cards_has_a_user() -> None:
    cpu, host = planned("cpu", cards=None)
    place = ContainerPlace("docker", user="5:6", limits=LIMITS, image="own/image:1")
    found = in_container(cpu, host, {}, place)
    made = container_of(cpu, host, environment={}, image="own/image:1")
    container = replace(made, program="docker", user="5:6")
    assert container.confined and not container.modules
    assert found == expected(place, container, health=True, plan=cpu)
