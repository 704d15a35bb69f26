"""``gaudi-launch exporter``: services and cards as Prometheus metrics."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.endless import until_ctrl_c
from gaudi_launch.cli.machine_option import MACHINE
from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.server_address import join, reached

app = CommandApp()


@app.command()
def exporter(
    host: str = typer.Option(
        "127.0.0.1", "-u", "--host", metavar="ADDRESS", help="Address to listen on."
    ),
    port: str = typer.Option("9640", "-p", "--port", metavar="PORT", help="Port to listen on."),
    machine: str | None = MACHINE,
    once: bool = typer.Option(False, "--once", help="Print the metrics and exit."),
    as_json: bool = typer.Option(False, "--json", help="With --once: one JSON object."),
) -> None:
    """Export metrics of your services and this machine's cards: phases, warm-up, restarts,
    run-time compiles.

    They contain no secret. The engine's own metrics are at its /metrics.
    """
    import sys
    import threading

    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.core.planning.parse import port as read_port

    number = read_port("-p", port)
    if as_json and not once:
        raise LaunchError("measure.exporter_json", ExitCode.USAGE)
    if machine is not None:
        from gaudi_launch.core.host.machine import load

        # an invalid name is reported now, not at every scrape
        load(machine)
    try:
        from gaudi_launch.extensions.watch.exporter import export as metrics
    except ImportError:
        raise LaunchError(
            "measure.no_package", ExitCode.MACHINE, name="prometheus_client", extra=""
        ) from None
    if once:
        if as_json:
            return emit_json({"schema": 1, "metrics": metrics.to_json(machine)})
        return print(metrics.page(machine), end="")
    from gaudi_launch.extensions.watch.exporter.server import listen

    try:
        server = listen(host, number, metrics.registry(machine, fresh=True))
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LaunchError(
            "measure.listen", ExitCode.MACHINE, host=host, port=number, why=why
        ) from None
    try:
        print(
            text("measure.exporter_up", url=f"http://{join(reached(host), number)}/metrics"),
            file=sys.stderr,
            flush=True,
        )
        in_background(server.serve_forever)
        with until_ctrl_c():
            threading.Event().wait()
    finally:
        server.server_close()
    return None
