"""Past values of what is shown, in memory, for the lines that draw them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from gaudi_launch.extensions.watch.sample import HostSample

_MOST = 120

Key = tuple[str, str, str]


@dataclass
class Trails:
    """The last two minutes of each value, by host, kind and name.

    None: it was unknown."""

    _values: dict[Key, deque[float | None]] = field(default_factory=dict)

    def add(self, host: HostSample) -> None:
        """Add one sample of a host."""
        for card in host.cards:
            name = card_name(card.module, card.index)
            self._put((host.host, "use", name), card.utilization_percent)
            self._put((host.host, "power", name), card.power_w)
        for service in host.services:
            self._put((host.host, "tokens", service.name), service.tokens_per_second)
        for node in host.nodes:
            self._put((host.host, "cpu", str(node.id)), node.cpu_percent)

    def of(self, host: str, kind: str, name: str) -> tuple[float | None, ...]:
        """Return the values, oldest first; empty when there are none."""
        return tuple(self._values.get((host, kind, name), ()))

    def _put(self, key: Key, value: float | None) -> None:
        self._values.setdefault(key, deque(maxlen=_MOST)).append(value)


def card_name(module: int | None, index: int | None) -> str:
    """Return a card's module ID, or its index marked as such."""
    if module is not None:
        return str(module)
    return "?" if index is None else f"i{index}"
