"""The machine of ``--machine``, read as a step that is shown while it lasts."""

from __future__ import annotations

from gaudi_launch.app.steps import step
from gaudi_launch.host import machine as host_machine
from gaudi_launch.host.hardware import Host


def load(machine: str | None = None) -> Host:
    """Return what `host.machine.load` returns: hl-smi may take seconds on a loaded server. Raises as that does."""
    with step("screen.step_machine"):
        return host_machine.load(machine)
