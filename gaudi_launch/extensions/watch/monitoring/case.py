"""The use case of ``gaudi-launch render monitoring``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaudi_launch.core.render.render import Destination, RenderedFiles

EXPORTER = "127.0.0.1:9640"


def render_monitoring(targets: str, to: Destination, *, force: bool) -> RenderedFiles:
    """Render the files for exporters as ``h1:9640,h2:9640``. Raises LaunchError."""
    from gaudi_launch.core.render.render import deliver
    from gaudi_launch.extensions.watch.monitoring.files import monitoring_files

    return deliver(
        monitoring_files([each.strip() for each in targets.split(",")]),
        "monitoring",
        to,
        force=force,
    )
