"""Wait for a service that another process starts, with a progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaudi_launch.core.services.state.registry import ServiceRecord


def until_ready(name: str, seconds: float | None = None) -> ServiceRecord:
    """Show the launch of a service until it answers; return the service.

    Raises LaunchError as `core.launch.waiting` does.
    """
    from gaudi_launch.cli.progress import LaunchBar
    from gaudi_launch.core.launch import waiting

    bar = LaunchBar()
    bar.open()
    try:
        return waiting.until_ready(name, seconds, bar.progress)
    finally:
        bar.close()
