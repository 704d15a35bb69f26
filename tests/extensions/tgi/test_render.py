"""An engine that comes in a container is rendered as that container, and nothing around it."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.render import script, systemd
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


def test_a_script_binds_no_docker_client() -> None:
    plan, _ = planned("tgi", model=MODEL, cards=2, environment=HOME)
    text = script.render(plan, {}).files["serve.sh"]
    assert "numactl" not in text and text.endswith('exec "${engine[@]}" "$@"\n')


def test_a_unit_is_only_for_an_engine_on_this_machine() -> None:
    plan, _ = planned("tgi", model=MODEL, cards=2, environment=HOME)
    with failing("docker.render", ExitCode.USAGE) as error:
        systemd.render(plan, "tgi", {})
    assert "'render systemd'" in str(error.value) and "render quadlet" in str(error.value)
