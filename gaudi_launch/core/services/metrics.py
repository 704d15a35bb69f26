"""An engine's running and waiting requests, of its counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.services.engine_counters import EngineCounters, counters_of


@dataclass(frozen=True)
class EngineLoad:
    """Numbers of running and waiting requests."""

    running: int
    waiting: int


def load_of(counters: EngineCounters) -> EngineLoad | None:
    """Return the load; None where the counters name no requests."""
    found = (counters.running, counters.waiting)
    if found == (None, None):
        return None
    return EngineLoad(*(_whole(each) for each in found))


def _whole(value: float | None) -> int:
    if value is not None and 0 <= value < 1e12:
        return int(value)
    return 0


def requests_of(url: str, timeout: float = 2.0) -> EngineLoad | None:
    """Return the load of the engine at this base URL.

    Return None when it does not answer in time.
    """
    return mapped(load_of, counters_of(url, timeout))


def loads(urls: Mapping[str, str], seconds: float) -> dict[str, EngineLoad]:
    """Return loads by name, all queried at the same time.

    Those that did not answer in this time are left out.
    """
    found: dict[str, EngineLoad] = {}

    def look(name: str, url: str) -> None:
        load = requests_of(url, seconds)
        if load is not None:
            found[name] = load

    threads = [in_background(partial(look, name, url)) for name, url in urls.items()]
    for thread in threads:
        thread.join(seconds)
    return dict(found)
