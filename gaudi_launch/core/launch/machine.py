"""The machine of ``--machine``, read as a step that is shown while it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.steps import step
from gaudi_launch.core.host import machine as host_machine
from gaudi_launch.core.host.hardware import Host

if TYPE_CHECKING:
    from gaudi_launch.core.launch.options import LaunchOptions


def load(machine: str | None = None) -> Host:
    """Return the result of `host.machine.load`, which may take seconds.

    hl-smi is slow on a loaded server. Raises LaunchError.
    """
    with step("screen.step_machine"):
        return host_machine.load(machine)


def planned_machine(
    options: LaunchOptions, accelerator: str, notes: list[Message]
) -> tuple[str | None, Host]:
    """Return the machine to plan for, and what it is.

    A full server of the product where it is named, or where this machine has no card. Raises
    LaunchError.
    """
    from gaudi_launch.core.host.simulated import server_of
    from gaudi_launch.core.launch.fit import product_for
    from gaudi_launch.core.launch.saved_plan import own_part

    if accelerator and own_part(options).machine:
        raise LaunchError("recommend.one_machine", ExitCode.USAGE)
    if not accelerator:
        host = load(options.machine)
        if host.cards or options.machine:
            return options.machine, host
    product = product_for(accelerator)
    server = server_of(product.id)
    if server is None:
        raise LaunchError("recommend.no_server", ExitCode.USAGE, found=product.id)
    if not accelerator:
        notes.append(
            message("recommend.assumed_machine", product=product.title, cards=product.cards)
        )
    return server, load(server)
