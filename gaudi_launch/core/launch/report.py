"""The interface to report events of a use case.

Events are lines, downloads, conversions, and an engine's launch. Commands show them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gaudi_launch.core.launch import waiting
from gaudi_launch.core.services.process.supervise import Watcher

if TYPE_CHECKING:
    from pathlib import Path

    from gaudi_launch.core.models.hub.download import PullProgress as Download
    from gaudi_launch.core.planning.plan import Plan
    from gaudi_launch.core.predict.simulate import Outcome
    from gaudi_launch.core.services.log.follow import LaunchProgress
    from gaudi_launch.core.services.probe import Readiness
    from gaudi_launch.core.services.state.registry import ServiceRecord


class LaunchDisplay(Watcher, Protocol):
    """Shows the launch of one engine: a `Watcher` with a beginning and an end."""

    def begin(self) -> None: ...

    def close(self) -> None: ...


class Reporter(Protocol):
    """Receives the events of a use case."""

    def say(self, line: str) -> None:
        """Receive one line of progress, in the user's language."""

    def downloading(self, progress: Download) -> None:
        """Receive the progress of a download."""

    def downloaded(self) -> None:
        """Receive the end of a download, also after an error."""

    def converted(self, shard: str) -> None:
        """Receive the name of a shard that was converted."""

    def screen(self, plan: Plan, speed: Outcome | None, log: Path, *, quiet: bool) -> LaunchDisplay:
        """Return the display for the launch of this plan's engine, with its speed."""

    def until_ready(self, name: str) -> ServiceRecord:
        """Return a service when it answers, and show its launch. Raises LaunchError."""


class Silent:
    """A reporter and a screen that show nothing."""

    def say(self, line: str) -> None:
        pass

    def downloading(self, progress: Download) -> None:
        pass

    def downloaded(self) -> None:
        pass

    def converted(self, shard: str) -> None:
        pass

    def screen(self, plan: Plan, speed: Outcome | None, log: Path, *, quiet: bool) -> LaunchDisplay:
        return self

    def until_ready(self, name: str) -> ServiceRecord:
        return waiting.until_ready(name)

    def begin(self) -> None:
        pass

    def close(self) -> None:
        pass

    def started(self, pid: int) -> None:
        pass

    def output(self, text: str) -> None:
        pass

    def progress(self, progress: LaunchProgress) -> None:
        pass

    def ready(self, readiness: Readiness) -> None:
        pass

    def ending(self, signal_number: int | None) -> None:
        pass
