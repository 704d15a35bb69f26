"""``gaudi-launch profiles``: list, show and check what is known of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.command_app import CommandApp

if TYPE_CHECKING:
    from gaudi_launch.profiles import Profile

app = CommandApp(
    no_args_is_help=True,
)

_JSON = typer.Option(False, "--json", help="One JSON object on stdout.")


@app.command("list")
def list_profiles(as_json: bool = _JSON) -> None:
    """List the profiles: shipped ones, and yours in the config directory, which take precedence."""
    from gaudi_launch.cli.console import console, emit_json, table
    from gaudi_launch.messages import text
    from gaudi_launch.profiles import profiles

    found = profiles()
    if as_json:
        emit_json({"schema": 1, "profiles": [_short(profile) for profile in found]})
        return
    names = ("name", "parameters", "cards", "dtype", "context", "from")
    rows = [
        (
            profile.name,
            f"{profile.facts['parameters'] / 1e9:.1f}e9",
            str(profile.cards),
            profile.dtype,
            str(profile.facts["max_position_embeddings"]),
            text("profiles.own" if profile.own else "profiles.shipped"),
        )
        for profile in found
    ]
    columns = [text(f"profiles.column_{name}") for name in names]
    console().print(table(text("profiles.title"), columns, rows, right=(1, 2, 4)))


@app.command()
def show(
    name: str = typer.Argument(..., metavar="NAME", help="A profile's name, or a model ID."), as_json: bool = _JSON
) -> None:
    """Show one profile file, with the source of each value."""
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.profiles import find, read_document

    profile = find(name)
    if as_json:
        emit_json(
            {"schema": 1, "file": str(profile.file), "own": profile.own, "profile": read_document(profile.file)}
        )
        return
    typer.echo(f"# {profile.file}")
    typer.echo(profile.file.read_text(encoding="utf-8"), nl=False)


@app.command()
def check(
    file: str = typer.Argument("", metavar="[FILE]", help="A profile to check (default: all)."),
    as_json: bool = _JSON,
) -> None:
    """Check profiles against their schema (profiles/schema/model.json)."""
    from pathlib import Path

    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.messages import text
    from gaudi_launch.profiles import load, profiles

    found = (load(Path(file), own=True),) if file else profiles()
    if as_json:
        emit_json({"schema": 1, "good": True, "profiles": [_short(profile) for profile in found]})
    elif file:
        typer.echo(text("profiles.good", path=file, name=found[0].name))
    else:
        typer.echo(text("profiles.all_good", count=len(found)))


def _short(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "title": profile.title,
        "models": list(profile.models),
        "parameters": profile.facts["parameters"],
        "cards": profile.cards,
        "dtype": profile.dtype,
        "max_position_embeddings": profile.facts["max_position_embeddings"],
        "assumed": list(profile.assumed),
        "own": profile.own,
        "file": str(profile.file),
    }
