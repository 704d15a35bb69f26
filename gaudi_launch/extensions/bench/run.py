"""``gaudi-launch run``: chat with a model, served first where no service has it."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.console import say
from gaudi_launch.cli.record_options import ModelCommand
from gaudi_launch.cli.service_progress import until_ready
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.services.endpoint import target
from gaudi_launch.core.services.state.chosen import with_model
from gaudi_launch.extensions.bench.chat import talk
from gaudi_launch.extensions.bench.chat_options import Chat, ChatOptions

app = CommandApp()


@app.command(cls=ModelCommand)
def run(
    model: str = typer.Argument(
        ..., metavar="MODEL", help="A folder, a hub ID, a running service or demo."
    ),
    words: list[str] | None = typer.Argument(
        None, metavar="[QUESTION]...", help="A question to answer."
    ),
    options: ChatOptions = Chat,
) -> None:
    """Chat with a model. Where no running service has it, it is served first, in the background, as
    'serve MODEL --detach' does.

    The service continues after the chat; 'stop NAME' ends it.
    """
    name = _serving(model)
    try:
        until_ready(name)
    except KeyboardInterrupt:
        say(text("services.goes_on", name=name))
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    say(text("services.stop_hint", name=name).strip())
    talk(target(name), options, " ".join(words or ()))


def _serving(model: str) -> str:
    """Return the running service that has a model; start it where there is none."""
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.core.launch.serve import ServeMode, start

    running = [each for each in with_model(model) if each.alive]
    if running:
        return running[0].name
    how = ServeMode(quiet=True, detach=True)
    return start(LaunchOptions(model=model), how, Terminal()).name
