"""A stack as systemd units: the target, the gateway's and the engines', as goldens."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.render.systemd import UnitOptions
from gaudi_launch.extensions.stack.gateway.gateway_image import RenderedGateway
from gaudi_launch.extensions.stack.systemd_stack import UnitEngine, render_stack, run_folder
from tests.support.cli import golden
from tests.support.plans import odd

GATEWAY = RenderedGateway(("/opt/haproxy", "-f", "100%", "%t/site-gateway"), {"haproxy.cfg": "x"})
PLAN = odd(("/opt/python3", "-m", "e"), {"A": "b"})
ENGINES = (
    UnitEngine("site-one", PLAN, {}, ()),
    UnitEngine("site-two", PLAN, {"HF_TOKEN": "x"}, ("site-one", "site-zero")),
)
SECRETS = {True: "%h/.config/gaudi-launch/site-two.env", False: "/etc/gaudi-launch/site-two.env"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("user", UnitOptions(user=True, launcher="/opt/gaudi-launch", run_as="me")),
        ("system", UnitOptions(run_as="me", launcher="/opt/gaudi-launch")),
        ("root", UnitOptions()),
    ],
)
def test_the_units_of_a_stack(name: str, options: UnitOptions, plain_english: None) -> None:
    found = render_stack("site", ["head %1", "more"], ENGINES, GATEWAY, options)
    text = "".join(f"==> {path}\n{content}" for path, content in found.files.items())
    golden(f"render-parts/stack-units-{name}.txt", text)
    installed = "render.stack_units_user" if name == "user" else "render.stack_units"
    tuning = {"user": "render.tuning_user", "system": "render.tuning"}.get(name)
    assert found.notes == (
        message(installed, name="site"),
        *([message(tuning)] if tuning else []),
        message("render.unit_secrets", names="HF_TOKEN", path=SECRETS[options.user]),
        message("render.stack_program", program="/opt/haproxy"),
    )


def test_the_folder_of_the_gateway() -> None:
    assert run_folder("site") == "%t/site-gateway"
