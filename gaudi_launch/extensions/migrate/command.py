"""``gaudi-launch migrate``: convert a start script's or an engine's command.

It also shows what would differ.
"""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.machine_option import MACHINE

app = CommandApp()


@app.command(context_settings={"ignore_unknown_options": True})
def migrate(
    words: list[str] | None = typer.Argument(
        None,
        metavar="'COMMAND' | FILE | -- ARGUMENTS",
        help="The old command, quoted or after --, or a file with it: a shell script, a compose "
        "file or a Kubernetes manifest.",
    ),
    release: str | None = typer.Option(
        None, "--release", metavar="1.21|1.22|deepseek_r1", help="Release of the script."
    ),
    engine: str | None = typer.Option(
        None,
        "--engine",
        metavar="ENGINE",
        help="Engine of the new command (default: the old one's).",
    ),
    machine: str | None = MACHINE,
    everything: bool = typer.Option(False, "--all", help="Every difference, note and warning."),
    as_json: bool = JSON,
) -> None:
    """Convert the command of a start script or an engine, and show what would differ.

    An engine's command is vllm serve, python -m vllm..., text-generation-launcher, docker run with
    one of them, or a file with one. plan takes one in place of the model.
    """
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.extensions.migrate.case import migrate as use_case
    from gaudi_launch.extensions.migrate.view import show, to_json

    found = use_case(words or [], release, machine, engine)
    if as_json:
        emit_json(to_json(found))
    else:
        show(found, complete=everything)
