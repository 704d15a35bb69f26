"""Watchers between the supervisor and the receivers of events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaudi_launch.core.recipes.attach import Keeper
    from gaudi_launch.core.services.log.follow import LaunchProgress
    from gaudi_launch.core.services.probe import Readiness
    from gaudi_launch.core.services.process.supervise import Watcher


class Passing:
    """Passes every event on."""

    def __init__(self, inner: Watcher) -> None:
        self._inner = inner

    def started(self, pid: int) -> None:
        self._inner.started(pid)

    def output(self, text: str) -> None:
        self._inner.output(text)

    def progress(self, progress: LaunchProgress) -> None:
        self._inner.progress(progress)

    def ready(self, readiness: Readiness) -> None:
        self._inner.ready(readiness)

    def ending(self, signal_number: int | None) -> None:
        self._inner.ending(signal_number)


class Warmed(Passing):
    """Notifies the recipe cache when its graphs are warm."""

    def __init__(self, inner: Watcher, keeper: Keeper) -> None:
        super().__init__(inner)
        self._keeper = keeper
        self._began = time.monotonic()
        self._facts: dict[str, str | int | float] = {}

    def started(self, pid: int) -> None:
        self._began = time.monotonic()
        super().started(pid)

    def progress(self, progress: LaunchProgress) -> None:
        self._facts = dict(progress.facts)
        super().progress(progress)

    def ready(self, readiness: Readiness) -> None:
        seconds = self._facts.get("warmup_seconds", time.monotonic() - self._began)
        blocks = self._facts.get("num_blocks")
        self._keeper.warm(float(seconds), int(blocks) if blocks is not None else None)
        super().ready(readiness)
