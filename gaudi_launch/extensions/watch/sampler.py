"""The one sampler of `top` and the exporter: cards, services and host together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from gaudi_launch.core.host.machine import SIMULATED
from gaudi_launch.core.services.engine_counters import EngineCounters
from gaudi_launch.core.services.state.registry import ServiceRecord, services
from gaudi_launch.extensions.watch.card_sampler import PATIENT_SECONDS, CardSampler
from gaudi_launch.extensions.watch.sample import CardSample, HostSample, ServiceSample
from gaudi_launch.extensions.watch.service_sampler import ServiceSampler, with_power
from gaudi_launch.extensions.watch.system_sampler import SystemSampler


class Sampler:
    """Samples one machine and this user's services."""

    def __init__(
        self,
        machine: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait_seconds: float = PATIENT_SECONDS,
        found: Callable[[], list[ServiceRecord]] = services,
    ) -> None:
        """Prepare a sampler of ``--machine``; ``wait_seconds`` is the time for hl-smi.

        Raises LaunchError (USAGE) for an unknown name.
        """
        self._found = found
        self._elsewhere = machine is not None
        self._simulated = str(machine).startswith(SIMULATED)
        self._cards = CardSampler(machine, clock, wait_seconds)
        self._services = ServiceSampler(clock)
        self._system = SystemSampler(clock)

    def sample(self) -> HostSample:
        """Return the host as it is now; calls hl-smi once at most."""
        known = self._services.sample(self._found())
        cards, problem = self._cards.sample()
        host = self._cards.host
        assert host is not None
        files = self._cards.files
        return HostSample(
            host=host.hostname or "-",
            at=time.time(),
            problem=problem,
            product=host.product,
            cards_read=problem is None,
            cards=tuple(_owned(card, known) for card in cards),
            services=tuple(with_power(service, cards) for service in known),
            nodes=self._system.nodes(files, host.numa_nodes) if files is not None else (),
            # disks are this machine's, whatever machine is simulated
            disks=() if self._elsewhere else self._system.disks(),
            simulated=self._simulated,
        )

    @property
    def is_complete(self) -> bool:
        """Return False while the first table of hl-smi has not come."""
        return self._cards.has_answer

    def counters(self, service: str) -> EngineCounters | None:
        """Return a service's counters; None when its engine does not answer."""
        return self._services.counters(service)

    def wait(self, seconds: float) -> None:
        """Wait until the engines have answered, for this time at most."""
        self._services.wait(seconds)


def _owned(card: CardSample, known: Iterable[ServiceSample]) -> CardSample:
    """Return a card with the service that it belongs to."""
    for service in known:
        if service.alive and card.module is not None and card.module in service.modules:
            return replace(card, owner=service.name)
    return card
