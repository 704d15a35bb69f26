"""A plan as scripts and as a unit, as goldens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.render import script, systemd
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.systemd import UnitOptions
from tests.support.cli import golden
from tests.support.plans import odd
from tests.support.scripted_hosts import failed

ARGV = (
    "/opt/venv/bin/python3", "-m", "e", "--model", "/m", "--flag", "--odd", "True", "--zeta=a b",
    "--alpha", "it's", "--twice", "1", "--twice", "2", "--list", "x", "y", "-q", "=x", "a,b", "+=y",
)  # fmt: skip
VARIABLES = {
    "B": "it's $HOME",
    "A": "1",
    "VLLM_API_KEY": "secret",
    "PT_HPU_RECIPE_CACHE_CONFIG": "/re cipes,false,9",
}
EXPORTED = {"HF_TOKEN": "x"}


def full() -> Plan:
    plan = odd(ARGV, VARIABLES)
    command = replace(
        plan.command,
        unset=("C", "D"),
        cpus=(0, 1, 2, 5),
        memory_node=1,
        working_dir="/work dir",
        files={"/f/x y": "text's\n"},
    )
    return replace(plan, command=command)


BARE = odd(("python3", "-m", "e"), {})


@pytest.mark.parametrize(("name", "plan"), [("full", full()), ("bare", BARE)])
def test_a_script(name: str, plan: Plan, plain_english: None) -> None:
    found = script.render(plan, EXPORTED)
    golden(f"render-parts/serve-{name}.sh", found.files["serve.sh"])
    assert found == Rendered({"serve.sh": found.files["serve.sh"]}, frozenset({"serve.sh"}))


@pytest.mark.parametrize(
    ("name", "plan", "options"),
    [
        ("full", full(), UnitOptions(run_as="me", launcher="/opt/gaudi-launch", target="t.target",
                                     after=("a.service",))),
        ("user", full(), UnitOptions(user=True, run_as="me", launcher="/opt/gaudi-launch")),
        ("bare", odd(("/opt/python3", "-m", "e"), {}), None),
    ],
)  # fmt: skip
def test_a_unit(name: str, plan: Plan, options: UnitOptions | None, plain_english: None) -> None:
    found = systemd.render(plan, "svc", {} if name == "bare" else EXPORTED, options)
    text = "".join(f"==> {path}\n{content}" for path, content in found.files.items())
    golden(f"render-parts/unit-{name}.txt", text)
    names = "VLLM_API_KEY, HF_TOKEN"
    expected = {
        "full": (
            message("render.unit_system", name="svc"),
            message("render.tuning"),
            message("render.unit_secrets", names=names, path="/etc/gaudi-launch/svc.env"),
        ),
        "user": (
            message("render.unit_user", name="svc"),
            message("render.tuning_user"),
            message("render.unit_secrets", names=names,
                    path="%h/.config/gaudi-launch/svc.env"),
        ),
        "bare": (message("render.unit_system", name="svc"),),
    }  # fmt: skip
    assert found.notes == expected[name]


def test_a_secret_that_is_not_required_may_be_missing(plain_english: None) -> None:
    plan = odd(("/opt/python3", "-m", "e"), {})
    text = systemd.render(plan, "svc", EXPORTED).files["svc.service"]
    assert "\nEnvironmentFile=-/etc/gaudi-launch/svc.env\n" in text


@pytest.mark.parametrize(
    ("plan", "options", "id", "values"),
    [
        (BARE, UnitOptions(), "render.no_path", {"found": "python3"}),
        (BARE, UnitOptions(run_as="-x"), "render.run_as", {"found": "-x"}),
        (odd(("/p", "a\0"), {}), UnitOptions(), "render.not_text", {"word": "'a\\x00'"}),
        (odd(("/p", "a\x01"), {}), UnitOptions(), "render.not_text", {"word": "'a\\x01'"}),
        (odd(("/p", "a\x7f"), {}), UnitOptions(), "render.not_text", {"word": "'a\\x7f'"}),
        (odd(("/p",), {"A": "\ud800"}), UnitOptions(), "render.not_text",
         {"word": "'\\ud800'"}),
        (odd(("/p",), {"A-B": "x"}), UnitOptions(), "render.not_text", {"word": "'A-B'"}),
    ],
)  # fmt: skip
def test_what_a_unit_cannot_have(
    plan: Plan, options: UnitOptions, id: str, values: dict[str, str]
) -> None:
    found = failed(lambda: systemd.render(plan, "svc", {}, options))
    assert found == (id, ExitCode.USAGE, values, None)
