"""``gaudi-launch render monitoring``."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.commands.render.view import show
from gaudi_launch.core.render.deliver import Destination, deliver
from gaudi_launch.core.render.monitoring import monitoring_files

_EXPORTER = "127.0.0.1:9640"
app = CommandApp()


@app.command()
def monitoring(
    out: str = typer.Option("", "--to", metavar="DIR", help="Target folder."),
    target: str = typer.Option(
        _EXPORTER, "--target", metavar="HOST:PORT,...", help="Addresses of the exporters to scrape."
    ),
    force: bool = typer.Option(False, "--force", help="Replace existing files."),
    as_json: bool = typer.Option(False, "--json", help="The files as one JSON object."),
) -> None:
    """Write Prometheus alert rules and a Grafana dashboard.

    A scrape config for the exporter's metrics is included.
    """
    to = Destination(f"{out.rstrip('/')}/" if out else None, several=as_json)
    rendered = monitoring_files([each.strip() for each in target.split(",")])
    show(deliver(rendered, "monitoring", to, force=force), as_json=as_json)
