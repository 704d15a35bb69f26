"""``gaudi-launch profiles``: profiles of models, and measured facts of servers."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.commands.profiles.view import show_added, show_checked, show_file
from gaudi_launch.core.planning.profiles import find, load, profiles

app = CommandApp(no_args_is_help=True)


@app.command()
def show(
    name: str = typer.Argument(..., metavar="NAME", help="A profile's name, or a model ID."),
    as_json: bool = JSON,
) -> None:
    """Show one profile file, with the source of each value."""
    show_file(find(name), as_json)


@app.command()
def check(
    file: str = typer.Argument("", metavar="[FILE]", help="A profile to check (default: all)."),
    as_json: bool = JSON,
) -> None:
    """Check profiles against profiles/schema/model.json."""
    from pathlib import Path

    found = (load(Path(file), own=True),) if file else profiles()
    show_checked(found, file, as_json)


@app.command("add-evidence")
def add_evidence(
    file: str = typer.Argument(..., metavar="FILE", help="gaudi-launch-evidence-*.json."),
    as_json: bool = JSON,
) -> None:
    """Record an acceptance test in a clone of this repository.

    What contradicts itself is refused. The figures of real cards become rows of
    profiles/performance/figures.csv.
    """
    from gaudi_launch.commands.profiles.evidence import add
    from gaudi_launch.core.base import paths

    show_added(add(file, paths.profiles_dir().parent), as_json)
