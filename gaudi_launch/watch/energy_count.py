"""Energy of services from measured power, summed while this program watches."""

from __future__ import annotations

from dataclasses import dataclass, field

from gaudi_launch.watch.sample import HostSample

# a longer gap (a suspended machine, a stopped process) is not filled with the last power
_MOST_SECONDS = 15.0


@dataclass
class EnergyCount:
    """Joules by service. A service is counted from its second reading on."""

    joules: dict[str, float] = field(default_factory=dict)
    _last: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, host: HostSample) -> None:
        """Add a sample: the mean of two readings for the time between them."""
        now = {each.name: each.power_w for each in host.services if each.power_w is not None}
        for name, watts in now.items():
            before = self._last.get(name)
            seconds = host.at - before[0] if before is not None else 0.0
            if before is not None and 0 < seconds <= _MOST_SECONDS:
                self.joules[name] = self.joules.get(name, 0.0) + seconds * (before[1] + watts) / 2
        self._last = {name: (host.at, watts) for name, watts in now.items()}
