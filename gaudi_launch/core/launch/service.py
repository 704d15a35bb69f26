"""A service as an object: started, waited for, stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_launch.core.launch.stop import left_error
from gaudi_launch.core.launch.waiting import until_ready
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.services.process.supervise import EngineOutcome
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.core.services.stop import stop

if TYPE_CHECKING:
    from types import TracebackType


@dataclass(frozen=True)
class Service:
    """A service that was started by `gaudi_launch.serve`.

    ``log`` is the file with the engine's output. ``outcome`` is that of an engine that ran in this
    process; None: a detached launcher runs it.
    """

    name: str
    plan: Plan
    log: Path
    outcome: EngineOutcome | None = None

    @property
    def url(self) -> str:
        """Return the base URL, without a path."""
        return self.plan.url

    @property
    def status(self) -> str:
        """Return its present phase: start, load, warmup_prompt, ..., ready, failed.

        Others are stopped, and "lost" without its launcher.
        """
        return find(self.name).phase

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until it answers, at most ``timeout`` seconds.

        Raises LaunchError: the engine's failure with its diagnosed cause, or ``services.not_yet``
        at the timeout. In both cases the service is left as it is.
        """
        until_ready(self.name, timeout)

    def stop(self, drain: float = 30.0) -> None:
        """Wait up to ``drain`` seconds for running requests, then stop the service.

        Its engine and all its processes are ended. A service that has ended is left as it is.
        Raises LaunchError when a process cannot be ended.
        """
        done = stop(find(self.name), drain, lambda what, value: None)
        if done.deaf:
            raise left_error(done.deaf)

    def __enter__(self) -> Service:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
