"""The machine of ``--machine``, read as a step that is shown while it lasts."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.steps import step
from gaudi_launch.core.host import machine as host_machine
from gaudi_launch.core.host.accelerators import product_of
from gaudi_launch.core.host.hardware import Host

_log = logging.getLogger(__name__)

_DEFAULT_PRODUCT = "gaudi2"


@dataclass(frozen=True)
class LaunchMachine:
    """The machine of a launch, read when it is first needed; ``name`` None: this one."""

    name: str | None

    @property
    def is_here(self) -> bool:
        return self.name is None

    @cached_property
    def host(self) -> Host:
        """Return the machine. Raises LaunchError."""
        return load(self.name)

    def product(self) -> str:
        """Return the accelerator of its cards; "" without cards."""
        return product_of(self.host)

    def for_engine(self, *, needs_cards: bool) -> Host:
        """Return the machine; an empty one for an engine on this machine's CPU."""
        # an engine on the CPU needs no card, so the machine's cards are not read
        if needs_cards or self.name:
            return self.host
        return Host()


def load(machine: str | None = None) -> Host:
    """Return the result of `core.host.machine.load`, which may take seconds.

    hl-smi is slow on a loaded server. Raises LaunchError.
    """
    with step("screen.step_machine"):
        return host_machine.load(machine)


def own_accelerator() -> str:
    """Return the product in this machine, gaudi2 without cards."""
    try:
        return product_of(load()) or _DEFAULT_PRODUCT
    except LaunchError as error:
        _log.debug("this machine has no known product: %s", error)
        return _DEFAULT_PRODUCT
