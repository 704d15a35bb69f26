"""A watcher that tells the recipe cache when its graphs are warm, and passes everything on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaudi_launch.recipe_cache.use import Keeper
    from gaudi_launch.services.follow import Progress
    from gaudi_launch.services.ready import Readiness
    from gaudi_launch.services.supervise import Watcher


class Warmed:
    """Stands between the supervisor and the screen."""

    def __init__(self, inner: Watcher, keeper: Keeper) -> None:
        self._inner = inner
        self._keeper = keeper
        self._began = time.monotonic()
        self._facts: dict[str, str | int | float] = {}

    def started(self, pid: int) -> None:
        self._began = time.monotonic()
        self._inner.started(pid)

    def output(self, text: str) -> None:
        self._inner.output(text)

    def progress(self, progress: Progress) -> None:
        self._facts = dict(progress.facts)
        self._inner.progress(progress)

    def ready(self, readiness: Readiness) -> None:
        seconds = self._facts.get("warmup_seconds", time.monotonic() - self._began)
        blocks = self._facts.get("num_blocks")
        self._keeper.warm(float(seconds), int(blocks) if blocks is not None else None)
        self._inner.ready(readiness)

    def ending(self, signal_number: int | None) -> None:
        self._inner.ending(signal_number)
