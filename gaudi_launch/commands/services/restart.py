"""``gaudi-launch restart``: start the same plan on the same cards again."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.console import say
from gaudi_launch.cli.service_progress import until_ready
from gaudi_launch.cli.times import DRAIN
from gaudi_launch.core.base.messages import text

app = CommandApp()


@app.command()
def restart(
    name: str | None = typer.Argument(
        None, metavar="NAME", help="The name of a service, as 'ps -a' shows it."
    ),
    drain: float = DRAIN,
    no_wait: bool = typer.Option(
        False, "--no-wait", help="Return immediately, not when it is ready."
    ),
) -> None:
    """Stop a service if it is running, and start it again in the background with the same
    settings."""
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.core.launch.stop import restart as use_case
    from gaudi_launch.core.services.state.chosen import unnamed
    from gaudi_launch.core.services.state.registry import services

    if name is None:
        raise unnamed(services())
    use_case(name, drain, Terminal())
    if no_wait:
        say(text("services.starting", name=name))
        return
    ready = until_ready(name)
    print(
        text("services.is_ready", name=name, model=ready.state.get("served") or "-", url=ready.url)
    )
