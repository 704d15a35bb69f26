"""An engine that comes in a container is rendered as that container, and nothing around it."""

from __future__ import annotations

from dataclasses import replace

import yaml

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.docker_command import docker_run
from gaudi_launch.core.render import compose, docker, quadlet, script, systemd
from gaudi_launch.core.render.plan_container import LEAST_LONG_START, LEAST_START, container_of
from tests.support.plans import planned
from tests.support.refusals import failing

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
HOME = {"HOME": "/home/me", "PWD": "/work"}


def test_it_is_the_plans_own_container() -> None:
    plan, host = planned("tgi", model=MODEL, cards=2, environment=HOME)
    assert plan.container is not None
    assert plan.container.url == "http://127.0.0.1:80"
    wanted = replace(plan.container, start_seconds=LEAST_START)
    assert container_of(plan, host, environment=HOME) == wanted
    assert container_of(plan, host, own_network=True) == wanted
    assert container_of(plan, host, image="mine:1") == replace(wanted, image="mine:1")


def test_fp8_takes_longer() -> None:
    plan, host = planned(
        "tgi@3.2.3", model=MODEL, cards=2, quant_config="q/c.json", environment=HOME
    )
    assert container_of(plan, host).start_seconds == LEAST_LONG_START


def test_docker_says_what_serve_starts() -> None:
    plan, host = planned("tgi", model=MODEL, cards=2, environment=HOME)
    container = container_of(plan, host)
    words = docker.run_words(container, container.name)
    assert [word for word in plan.command.argv if word not in words] == []
    assert words[-len(container.argv) - 1 :] == (container.image, *container.argv)
    assert docker_run(container, container.name) == plan.command.argv
    assert "--entrypoint" not in words


def test_compose_and_quadlet() -> None:
    plan, host = planned("tgi", model=MODEL, cards=2, environment=HOME)
    container = container_of(plan, host)
    document = yaml.safe_load(compose.render(container, "tgi", ["x"], None).files["compose.yaml"])
    service = document["services"]["tgi"]
    assert service["command"] == list(container.argv) and service["ports"] == ["127.0.0.1:30001:80"]
    assert service["environment"]["HF_TOKEN"] is None and "entrypoint" not in service
    assert service["healthcheck"]["test"][-1] == "http://127.0.0.1:80/health"
    unit = quadlet.render(container, "tgi", ["x"], None).files["tgi.container"]
    assert "PublishPort=127.0.0.1:30001:80\n" in unit and "--entrypoint" not in unit


def test_a_script_binds_no_docker_client() -> None:
    plan, _ = planned("tgi", model=MODEL, cards=2, environment=HOME)
    text = script.render(plan, {}).files["serve.sh"]
    assert "numactl" not in text and text.endswith('exec "${engine[@]}" "$@"\n')


def test_a_unit_is_only_for_an_engine_on_this_machine() -> None:
    plan, _ = planned("tgi", model=MODEL, cards=2, environment=HOME)
    with failing("docker.render", ExitCode.USAGE) as error:
        systemd.render(plan, "tgi", {})
    assert "'render systemd'" in str(error.value) and "render quadlet" in str(error.value)
