"""``gaudi-launch wait``: until a service answers."""

from __future__ import annotations

import typer

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def wait(
    name: str = typer.Argument(..., metavar="NAME", help="A service, as 'ps' shows it."),
    timeout: float | None = typer.Option(None, "--timeout", metavar="SECONDS", help="Give up after so long."),
) -> None:
    """Show the start of a service until it answers (0) or failed (4)."""
    from gaudi_launch.cli.waiting import until_ready
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text

    if timeout is not None and not 0 < timeout < 1e7:
        raise LaunchError("services.timeout", ExitCode.USAGE, found=timeout)
    service = until_ready(name, timeout)
    print(text("services.is_ready", name=name, model=service.state.get("served") or "-", url=service.url))
