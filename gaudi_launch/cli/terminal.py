"""The reporter of the commands: lines and bars on stderr, and a launch `Screen`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaudi_launch.cli import console

if TYPE_CHECKING:
    from pathlib import Path

    from gaudi_launch.cli.views.download import DownloadView
    from gaudi_launch.core.launch import report
    from gaudi_launch.core.models.hub.download import PullProgress
    from gaudi_launch.core.planning.plan import Plan
    from gaudi_launch.core.predict.simulate import Outcome
    from gaudi_launch.core.services.state.registry import ServiceRecord


class Terminal:
    """A `gaudi_launch.core.launch.report.Reporter` for people."""

    def __init__(self) -> None:
        self._download: DownloadView | None = None

    def say(self, line: str) -> None:
        console.say(line)

    def downloading(self, progress: PullProgress) -> None:
        if self._download is None:
            from gaudi_launch.cli.views.download import DownloadView

            self._download = DownloadView()
        self._download.report(progress)

    def downloaded(self) -> None:
        if self._download is not None:
            self._download.close()
            self._download = None

    def converted(self, shard: str) -> None:
        console.console(stderr=True).print(shard)

    def screen(
        self, plan: Plan, speed: Outcome | None, log: Path, *, quiet: bool
    ) -> report.LaunchDisplay:
        from gaudi_launch.cli.views.serve import Screen

        return Screen(plan, speed, str(log), quiet)

    def until_ready(self, name: str) -> ServiceRecord:
        # rich is expensive to import
        from gaudi_launch.cli import service_progress

        return service_progress.until_ready(name)
