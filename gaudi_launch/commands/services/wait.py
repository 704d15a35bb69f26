"""``gaudi-launch wait``: wait until a service answers."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.service_progress import until_ready
from gaudi_launch.cli.shared_options import NAME
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text

app = CommandApp()


@app.command()
def wait(
    name: str | None = NAME,
    timeout: str | None = typer.Option(
        None, "--timeout", metavar="TIME", help="Timeout: 90, 5m, 1h."
    ),
    as_json: bool = JSON,
) -> None:
    """Show the progress of a launch until the service is ready (exit 0) or failed (exit 4)."""
    import time

    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.core.planning.parse import seconds
    from gaudi_launch.core.services.state.chosen import resolve

    if timeout is None:
        limit = None
    else:
        limit = seconds("--timeout", timeout, least=0, most=1e7)
    if limit == 0:
        raise LaunchError("services.timeout", ExitCode.USAGE, found=timeout)
    begin = time.monotonic()
    service = until_ready(resolve(name).name, limit)
    if as_json:
        waited = round(time.monotonic() - begin, 1)
        facts = {
            "name": service.name,
            "phase": "ready",
            "model": service.state.get("served"),
            "url": service.url,
        }
        emit_json({"schema": 1, **facts, "waited_seconds": waited})
        return
    print(
        text(
            "services.is_ready",
            name=service.name,
            model=service.state.get("served") or "-",
            url=service.url,
        )
    )
