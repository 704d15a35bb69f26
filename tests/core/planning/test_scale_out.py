"""Cards of several link groups: the guide's libraries in plan, doctor and every rendered
container."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.runner import CHECKS, judge
from gaudi_launch.core.engines.docker_command import docker_run
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host import simulated
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.planning.plan import Plan, Setting
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.scale_out import LIBRARIES, ROOT
from gaudi_launch.core.render import compose, quadlet
from gaudi_launch.core.render.plan_container import container_of
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


@pytest.mark.parametrize("machine", ["gaudi2e-8", "gaudi3-pcie"])
@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-gaudi"])
def test_more_cards_than_a_group_need_the_libraries(machine: str, engine: str) -> None:
    made = plan(8, engine, machine)
    (found,) = [warning for warning in made.warnings if warning.id == "plan.scale_out"]
    assert found == message("plan.scale_out", cards=8, engine=made.engine.label)
    assert f"setup {made.engine.label} --scale-out" in found.render("en")


def test_one_group_needs_nothing() -> None:
    assert "plan.scale_out" not in ids(plan(4))
    assert "plan.scale_out" not in ids(plan(8, machine="hls2"))
    assert "LIBFABRIC_ROOT" not in plan(4, libfabric_root="/opt/libfabric").command.env


def test_installed_libraries_are_given_to_the_engine() -> None:
    made = plan(8, libfabric_root="/opt/libfabric")
    assert "plan.scale_out" not in ids(made)
    assert made.command.env["LIBFABRIC_ROOT"] == "/opt/libfabric"
    assert made.command.env["LD_LIBRARY_PATH"] == "/opt/libfabric/lib:/usr/lib/habanalabs"
    manual = "Gaudi2E inference manual 1.21, 1.2.1"
    assert [each for each in made.settings if each.name in (ROOT, LIBRARIES)] == [
        Setting(ROOT, "/opt/libfabric", "env", "computed", message("plan.libfabric_root"), manual),
        Setting(
            LIBRARIES,
            "/opt/libfabric/lib:/usr/lib/habanalabs",
            "env",
            "computed",
            message("plan.libfabric_libraries"),
            manual,
        ),
    ]


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


def test_docker_gets_the_guides_words_and_image() -> None:
    made = container(8, libfabric_root="/opt/libfabric")
    assert made.image.endswith("-scale-out")
    # the image has libraries of its own
    assert "LD_LIBRARY_PATH" not in made.env
    words = docker_run(made, "name")
    assert words[words.index("--device=/dev:/dev") + 1 :][:2] == ("-v", "/dev:/dev")
    assert {"--cap-add=sys_nice", "--cap-add=SYS_PTRACE", "--cap-add=IPC_LOCK"} <= set(words)
    assert "--ulimit=memlock=-1:-1" in words
    with_limit = docker_run(made, "name", options=("--ulimit=memlock=-1:-1",))
    assert with_limit.count("--ulimit=memlock=-1:-1") == 1


def test_one_group_gets_no_more_rights() -> None:
    made = container(4)
    assert not made.image.endswith("-scale-out")
    words = docker_run(made, "name")
    assert "--device=/dev:/dev" not in words
    assert "--cap-add=IPC_LOCK" not in words


def test_compose_and_quadlet_get_them_too() -> None:
    made = container(8)
    service = yaml.safe_load(compose.render(made, "name", ["head"], None).files["compose.yaml"])[
        "services"
    ]["name"]
    assert service["cap_add"] == ["sys_nice", "SYS_PTRACE", "IPC_LOCK"]
    assert service["devices"] == ["/dev:/dev"]
    assert {"type": "bind", "source": "/dev", "target": "/dev"} in service["volumes"]
    assert service["ulimits"]["memlock"] == {"soft": -1, "hard": -1}
    unit = quadlet.render(made, "name", ["head"], None).files["name.container"].splitlines()
    assert {"AddCapability=SYS_PTRACE", "AddCapability=IPC_LOCK"} <= set(unit)
    assert {"PodmanArgs=--device=/dev:/dev", "PodmanArgs=--volume=/dev:/dev"} <= set(unit)
    small = yaml.safe_load(compose.render(container(4), "n", ["head"], None).files["compose.yaml"])[
        "services"
    ]["n"]
    assert (small["cap_add"], "devices" in small) == (["sys_nice"], False)


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


def test_kubernetes_gets_the_rights_and_the_image(capsys: pytest.CaptureFixture[str]) -> None:
    from gaudi_launch.cli.main import run

    def pod(cards: int) -> tuple[dict[str, Any], str]:
        words = [
            "-w",
            "/models/Qwen2-72B-Instruct",
            "-n",
            str(cards),
            "--machine",
            "simulated:gaudi2e-8",
        ]
        assert run(["render", "kubernetes", "--engine", "vllm-fork@1.21", *words]) == 0
        shown = capsys.readouterr()
        documents = [
            each for each in yaml.safe_load_all(shown.out) if each and each["kind"] == "Deployment"
        ]
        return documents[0]["spec"]["template"]["spec"]["containers"][0], shown.err

    large, notes = pod(8)
    assert large["securityContext"]["capabilities"]["add"] == ["SYS_NICE", "SYS_PTRACE", "IPC_LOCK"]
    assert large["image"].endswith("-scale-out")
    assert large["image"] in notes
    small, _ = pod(4)
    assert small["securityContext"]["capabilities"]["add"] == ["SYS_NICE"]
    assert not small["image"].endswith("-scale-out")
