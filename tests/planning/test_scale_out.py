"""Cards of several link groups: the guide's libraries in plan, doctor and every rendered
container."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.doctor.runner import CHECKS, judge
from gaudi_launch.engines.registry import find
from gaudi_launch.host import simulated
from gaudi_launch.models.model import Model
from gaudi_launch.planning.container import Container
from gaudi_launch.planning.plan import Plan
from gaudi_launch.planning.planner import make_plan
from gaudi_launch.planning.request import Request
from gaudi_launch.render.plan_container import container_of
from tests.support import doctor_machines as m

PCIE = simulated.make("gaudi2e-8")
MODEL = Model("/m/x", "x", max_position_embeddings=32768)


def plan(
    cards: int, engine: str = "vllm-fork@1.21", machine: str = "gaudi2e-8", **wishes: Any
) -> Plan:
    request = Request(model=MODEL.path, cards=cards, engine=engine, max_model_len=8192, **wishes)
    return make_plan(request, simulated.make(machine), MODEL, find(engine))


def ids(made: Plan) -> list[str]:
    return [warning.id for warning in made.warnings]


def test_what_the_user_exported_stays() -> None:
    exported = {"LIBFABRIC_ROOT": "/my/fabric", "LD_LIBRARY_PATH": "/my/lib:/usr/lib/habanalabs"}
    made = plan(8, environment=exported, libfabric_root="/opt/libfabric")
    settings = {setting.name: setting for setting in made.settings}
    assert settings["LIBFABRIC_ROOT"].value == "/my/fabric"
    assert settings["LIBFABRIC_ROOT"].source == "environment"
    assert settings["LD_LIBRARY_PATH"].value == "/my/fabric/lib:/my/lib:/usr/lib/habanalabs"


def test_reference_tuning_sets_no_variable_of_its_own() -> None:
    made = plan(8, tuning="reference", libfabric_root="/opt/libfabric")
    assert "LIBFABRIC_ROOT" not in made.command.env
    assert "plan.scale_out" in ids(plan(8, tuning="reference"))


def container(cards: int, **wishes: Any) -> Container:
    return container_of(plan(cards, **wishes), PCIE)


@pytest.mark.parametrize("id", ["network.libfabric", "network.ofi_wrapper"])
@pytest.mark.parametrize(
    ("wants", "command"),
    [
        ({"engine": "vllm-fork@1.21"}, "sudo gaudi-launch setup vllm-fork@1.21 --scale-out"),
        ({}, "sudo gaudi-launch setup ENGINE --scale-out"),
        (
            {"engine": "deepseek_r1", "container": True},
            "gaudi-launch setup deepseek_r1 --in docker --scale-out",
        ),
    ],
)
def test_doctor_names_the_command(id: str, wants: dict[str, Any], command: str) -> None:
    check = next(check for check in CHECKS if check.id == id)
    facts = m.facts("gaudi2e-8")
    facts = replace(facts, wants=replace(facts.wants, cards=8, **wants))
    finding = judge(check, facts)
    assert finding.status == "warn"
    assert finding.remedy is not None
    assert finding.remedy.commands == (command,)
