"""Versions of an engine that were replaced, for people and for programs."""

from __future__ import annotations

from typing import Any

import typer

from gaudi_launch.cli.console import emit_json
from gaudi_launch.commands.setup.case import Leftovers, RollBack
from gaudi_launch.core.base.messages import text


def show_leftovers(replaced: Leftovers | None) -> None:
    """Print what still runs from the version before, and versions of no use."""
    if replaced is None:
        return
    between = text("common.between")
    if replaced.services:
        typer.echo(
            text("setup.still_running", names=between.join(replaced.services), path=replaced.old)
        )
    elif replaced.used:
        typer.echo(text("setup.still_used", path=replaced.old))
    if replaced.others:
        typer.echo(text("setup.older", paths=between.join(map(str, replaced.others))))


def leftovers_json(replaced: Leftovers | None) -> dict[str, Any]:
    """Return the keys of ``setup --json`` about the version that was replaced."""
    if replaced is None:
        return {"replaced": None, "services": []}
    return {"replaced": str(replaced.old), "services": list(replaced.services)}


def show_rollback(done: RollBack, dry_run: bool, as_json: bool) -> None:
    """Print a return to the version before."""
    if as_json:
        document = {
            "schema": 1,
            "engine": done.name,
            "folder": str(done.folder),
            "python": str(done.python),
        }
        return emit_json(document | {"dry_run": dry_run} | leftovers_json(done.replaced))
    id = "setup.would_roll_back" if dry_run else "setup.rolled_back"
    typer.echo(
        text(id, engine=done.name, path=done.folder, old=done.replaced.old, python=done.python)
    )
    if not dry_run:
        show_leftovers(done.replaced)
    return None
