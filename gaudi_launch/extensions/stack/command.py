"""``gaudi-launch stack``: several models on one server behind one address.

Init, plan, up, apply, down, ps, logs, restart.
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.console import emit_json, say
from gaudi_launch.cli.endless import until_ctrl_c
from gaudi_launch.cli.machine_option import MACHINE
from gaudi_launch.cli.shared_options import ALL
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.cli.times import DRAIN
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.extensions.stack import case, stack_plan, view
from gaudi_launch.extensions.stack import init as stack_init
from gaudi_launch.extensions.stack.change import ChangeOptions
from gaudi_launch.extensions.stack.stack_plan import StackChanges

app = CommandApp(
    no_args_is_help=True,
    help="Run several models behind one address, as one file describes them.",
)

_FILE = typer.Argument(..., metavar="FILE", help="The stack's YAML file.")
_MODEL = typer.Argument(
    "", metavar="[MODEL]", help="A model, a service of it, or gateway (default: all)."
)
_STACK = typer.Option(
    "", "--stack", metavar="NAME|FILE", help="The stack, where several were started."
)


@app.command()
def init(
    models: list[str] | None = typer.Argument(
        None, metavar="MODEL...", help="Models; one given twice gets two replicas."
    ),
    to: Path = typer.Option(Path("stack.yaml"), "--to", metavar="FILE", help="The file to write."),
    port: str = typer.Option(
        "", "-p", "--port", metavar="PORT", help="Port of the gateway (default 8000)."
    ),
    engine: str = typer.Option(
        "", "--engine", metavar="ENGINE", help="auto, or one of 'gaudi-launch engines'."
    ),
    python: str = typer.Option("", "--python", metavar="PATH", help="The engine's interpreter."),
    machine: str = MACHINE,
    schema: bool = typer.Option(
        False, "--schema", help="Print the JSON schema of the file, and write nothing."
    ),
    as_json: bool = JSON,
) -> None:
    """Write a file with these models for this machine.

    Each model gets the number of cards that plan would choose; one gateway serves all.

    An existing file is not changed.
    """
    if schema:
        from gaudi_launch.core.base.profiles_check import schema as published

        emit_json(dict(published("stack")))
        return
    planned = stack_init.init(
        models or [], to, port=port, machine=machine or None, engine=engine, python=python
    )
    if as_json:
        emit_json(view.to_json(planned))
        return
    view.show_plan(planned, complete=False)
    view.show_written(planned)


@app.command()
def plan(
    file: Path = _FILE,
    machine: str = MACHINE,
    everything: bool = ALL,
    as_json: bool = JSON,
) -> None:
    """Show cards, memory and start time of all models; start nothing."""
    planned = stack_plan.plan(file, machine or None)
    if as_json:
        emit_json(view.to_json(planned))
    else:
        view.show_plan(planned, complete=everything)


@app.command()
def up(
    file: Path = _FILE,
    no_wait: bool = typer.Option(
        False, "--no-wait", help="Return when the last models were started."
    ),
    no_doctor: bool = typer.Option(
        False, "--no-doctor", help="Start although a check of the machine fails."
    ),
    as_json: bool = JSON,
) -> None:
    """Start the gateway and all models that do not run.

    It waits until they answer.

    A second run changes nothing. Ctrl-C ends the wait only: what was started stays.
    """
    try:
        stack, changed = case.up(file, Terminal(), no_doctor=no_doctor, wait=not no_wait)
    except KeyboardInterrupt:
        say(text("stack.interrupted", path=str(file)))
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    if as_json:
        emit_json(view.started_to_json(stack, changed))
    else:
        view.show_started(stack, changed, waited=not no_wait)


@app.command()
def apply(
    file: Path = _FILE,
    yes: bool = typer.Option(
        False, "-y", "--yes", help="Apply without confirmation, also with a downtime."
    ),
    no_doctor: bool = typer.Option(
        False, "--no-doctor", help="Start although a check of the machine fails."
    ),
    drain: float = DRAIN,
    as_json: bool = JSON,
) -> None:
    """Change what runs to what the file describes; lose no request.

    What the file does not change stays as it is.

    A new version of a model starts next to the old one, takes over when it answers, and the old one
    ends. Where the cards do not suffice for both, the downtime is stated and confirmed first.
    """
    options = ChangeOptions(no_doctor=no_doctor, drain=drain)
    try:
        stack, changed = case.apply(
            file, Terminal(), options, lambda changes: _agrees(changes, yes)
        )
    except KeyboardInterrupt:
        say(text("stack.apply_interrupted", path=str(file)))
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    if changed is None:
        raise typer.Exit(int(ExitCode.INTERRUPTED))
    if as_json:
        emit_json(view.applied_to_json(stack, changed))
    else:
        view.show_applied(stack, changed)


def _agrees(changes: StackChanges, yes: bool) -> bool:
    """State what does not answer for a time, and return the user's consent."""
    for line in view.interruptions(changes):
        say(line)
    if yes:
        return True
    path = str(changes.stack.path)
    if not sys.stdin.isatty():
        # a gateway that moves ends the requests to all models
        models = (
            ", ".join(each.model for each in changes.downtimes) or changes.stack.gateway_service
        )
        raise LaunchError("stack.apply_yes", ExitCode.USAGE, path=path, models=models)
    return typer.confirm(text("stack.apply_ask", path=path), err=True)


@app.command()
def restart(
    model: str = _MODEL,
    stack: str = _STACK,
    drain: float = DRAIN,
) -> None:
    """Restart a model's engines, the gateway, or all, in turns."""
    case.restart(case.target(model, stack), drain, Terminal())


@app.command()
def logs(
    model: str = _MODEL,
    stack: str = _STACK,
    follow: bool = typer.Option(
        False, "-f", "--follow", help="Follow the logs until all services end."
    ),
    lines: int | None = typer.Option(
        None, "-n", "--lines", metavar="N", min=0, help="Only the last N lines of each."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object for each line."),
) -> None:
    """Print the logs of engines and gateway, each line with its service.

    With --json each line is one JSON object with its service.
    """
    names = case.target(model, stack).names
    with until_ctrl_c():
        view.show_logs(names, follow=follow, last=lines, as_json=as_json)


@app.command()
def down(
    name: str = typer.Argument(..., metavar="FILE", help="The stack's YAML file, or its name."),
    drain: float = DRAIN,
    as_json: bool = JSON,
) -> None:
    """Stop the gateway and all models, and remove their records and logs."""
    stack, ended = case.down(name, Terminal(), drain)
    if as_json:
        emit_json(view.ended_to_json(stack, ended))
    else:
        view.show_ended(stack, ended)


@app.command()
def ps(
    name: str = typer.Argument(
        "", metavar="[FILE]", help="One stack, by its file or name (default: all)."
    ),
    everything: bool = ALL,
    as_json: bool = JSON,
) -> None:
    """List the models of started stacks: phase, cards, port, last error."""
    states = case.ps(name or None)
    if as_json:
        emit_json(view.states_to_json(states))
    else:
        view.show_states(states, complete=everything)
