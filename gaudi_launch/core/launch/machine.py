"""The machine of ``--machine``, read as a step that is shown while it lasts."""

from __future__ import annotations

from gaudi_launch.core.base.steps import step
from gaudi_launch.core.host import machine as host_machine
from gaudi_launch.core.host.hardware import Host


def load(machine: str | None = None) -> Host:
    """Return the result of `core.host.machine.load`, which may take seconds.

    hl-smi is slow on a loaded server. Raises LaunchError.
    """
    with step("screen.step_machine"):
        return host_machine.load(machine)
