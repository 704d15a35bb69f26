"""The use cases of ``gaudi-launch power``: measured power, and power limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.optional import mapped

if TYPE_CHECKING:
    from gaudi_launch.doctor.power_limit import CapChange, CapOutcome
    from gaudi_launch.host.accelerators import PowerRange
    from gaudi_launch.services.history import DayEnergy
    from gaudi_launch.watch.sample import HostSample


@dataclass(frozen=True)
class ServiceEnergy:
    """The measured energy of one service by day, oldest first."""

    name: str
    days: tuple[DayEnergy, ...]


@dataclass(frozen=True)
class PowerReport:
    """Power now and energy by day; ``range`` is None where no document states one."""

    host: HostSample
    energy: tuple[ServiceEnergy, ...]
    range: PowerRange | None


def report(machine: str | None, days: int) -> PowerReport:
    """Return what was measured; nothing is estimated. Raises LaunchError (USAGE)."""
    from gaudi_launch.app.top import WatchRequest, once
    from gaudi_launch.host.accelerators import power_range
    from gaudi_launch.services.history import read_energy
    from gaudi_launch.services.state.registry import services

    if not 1 <= days <= 400:
        raise LaunchError("power.days", ExitCode.USAGE, found=days)
    (host,) = once(WatchRequest(machine=machine))
    found = [
        ServiceEnergy(each.name, tuple(read_energy(each.folder)[-days:])) for each in services()
    ]
    energy = tuple(each for each in found if each.days)
    return PowerReport(host, energy, mapped(power_range, host.product))


def planned_cap(watts: int, modules: Sequence[int] | None, machine: str | None) -> list[CapChange]:
    """Return the changes of ``--cap``. Raises LaunchError."""
    from gaudi_launch.app.machine import load
    from gaudi_launch.doctor import power_limit

    return power_limit.planned(load(machine), watts, modules)


def set_cap(changes: Sequence[CapChange]) -> list[CapOutcome]:
    """Set the limits of this machine's cards. Raises LaunchError."""
    from gaudi_launch import paths
    from gaudi_launch.doctor import power_limit
    from gaudi_launch.host import hl_smi

    ask = hl_smi.find()
    if ask is None:
        raise LaunchError("power.no_hl_smi", ExitCode.MACHINE)
    return power_limit.apply(paths.machine_root(), changes, ask)


def undo_caps() -> list[CapOutcome]:
    """Restore the limits that `set_cap` changed. Raises LaunchError."""
    from gaudi_launch import paths
    from gaudi_launch.doctor import power_limit
    from gaudi_launch.host import hl_smi

    ask = hl_smi.find()
    if ask is None:
        raise LaunchError("power.no_hl_smi", ExitCode.MACHINE)
    return power_limit.undo(paths.machine_root(), ask)
