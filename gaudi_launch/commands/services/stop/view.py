"""Stopped services and the processes that ended launchers left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import console, say, table
from gaudi_launch.cli.views.run_record import run_line
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped

if TYPE_CHECKING:
    from gaudi_launch.core.services.state.orphans import Orphan
    from gaudi_launch.core.services.stop import Stopped


def show_ended(ended: Stopped) -> None:
    """Print the result for a service, on stderr."""
    if not ended.was_running:
        id = "services.was_not_alive"
    elif ended.busy:
        id = "services.ended"
    else:
        id = "services.stopped"
    say(text(id, name=ended.service.name))
    if ended.run is not None and ended.was_running:
        say(run_line(ended.run.to_json()))
    if ended.left:
        say(text("services.cut", count=ended.left))
    if ended.busy:
        say(text("services.cards_busy", cards=",".join(map(str, ended.busy))))


def ended_to_json(ended: Stopped) -> dict[str, Any]:
    """Return an ended service for programs."""
    return {
        "name": ended.service.name,
        "was_alive": ended.was_alive,
        "requests_cut": ended.left,
        "orphans": [orphan.to_json() for orphan in ended.orphans],
        "cards_busy": list(ended.busy),
        "simulated_run": mapped(lambda run: run.to_json(), ended.run),
    }


def orphans_to_json(
    found: Sequence[Orphan], left: Sequence[Orphan], unsure: Sequence[Orphan]
) -> dict[str, Any]:
    """Return orphaned processes for programs.

    They are ended ones, those that did not end, and those left running.
    """
    return {
        "schema": 1,
        "ended": [orphan.to_json() for orphan in found if orphan not in left],
        "left": [orphan.to_json() for orphan in left],
        "unsure": [orphan.to_json() for orphan in unsure],
    }


def show_orphans(found: Sequence[Orphan]) -> None:
    """Print the processes of ended launchers, on stderr."""
    out = console(stderr=True)
    if not found:
        out.print(text("services.no_orphans"))
        return
    rows = [
        (str(orphan.process.pid), str(orphan.to_json()["service"]), orphan.command)
        for orphan in found
    ]
    out.print(table("", text("services.orphan_columns").split("|"), rows, right=(0,)))


def show_unsure(unsure: Sequence[Orphan]) -> None:
    """Print the processes that are left running, with the reason, on stderr."""
    if not unsure:
        return
    out = console(stderr=True)
    out.print(text("services.unsure", count=len(unsure)))
    rows = []
    for orphan in unsure:
        document = orphan.to_json()
        rows.append(
            (
                str(document["pid"]),
                str(document["service"]),
                orphan.command,
                str(document["reason"]),
            )
        )
    out.print(table("", text("services.unsure_columns").split("|"), rows, right=(0,)))
