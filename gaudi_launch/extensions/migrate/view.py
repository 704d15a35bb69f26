"""A migrated command with its differences, for people and for programs."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import console, table
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from gaudi_launch.extensions.migrate.case import Migration

_COLUMNS = ("name", "reference", "ours", "reason")


def to_json(found: Migration) -> dict[str, Any]:
    """Return the migration for programs."""
    explained = found.plan.reference_differences
    return {
        "schema": 1,
        "release": found.release,
        "command": list(found.command),
        "plan": found.plan.to_json(),
        "differences": [asdict(difference) for difference in found.differences],
        "reference_differences": [each.to_json() for each in explained],
        "machine": found.host.origin,
        "notes": [each.to_json() for each in found.notes],
    }


def show(found: Migration) -> None:
    """Print our command (of a script in both tunings), what differs, and the notes."""
    out = console()
    if found.scripted:
        out.print(text("migrate.is", release=found.release))
        at = found.command.index("serve") + 1
        reference = [*found.command[:at], "--tuning", "reference", *found.command[at:]]
        out.print("  " + shlex.join(reference))
        out.print(text("migrate.better"))
    else:
        out.print(text("migrate.engine", engine=found.release))
    out.print("  " + shlex.join(found.command))
    if found.differences:
        columns = [text(f"migrate.column_{name}") for name in _COLUMNS]
        rows = []
        for each in found.differences:
            rows.append((each.name, _cell(each.reference), _cell(each.ours), each.reason))
        out.print(table(text("migrate.title"), columns, rows))
    if found.scripted:
        out.print(text("reference.title"))
    for difference in found.plan.reference_differences:
        out.print(f"  - {difference.render()}")
    for warning in found.plan.warnings:
        out.print(text("plan.warning", what=warning.render()))
    for note in found.notes:
        print(note.render())


def _cell(value: str | None) -> str:
    return "-" if value is None else value
