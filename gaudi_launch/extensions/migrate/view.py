"""A migrated command with its differences, for people and for programs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.short_page import NotedRow, ShortPage, command_line
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from rich.text import Text

    from gaudi_launch.extensions.migrate.case import Migration, SettingDifference


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


def show(found: Migration, *, complete: bool) -> None:
    """Print our command (of a script in both tunings), what differs, and the notes."""
    count = len(found.differences)
    head: list[str | Text]
    if found.scripted:
        at = found.command.index("serve") + 1
        reference = [*found.command[:at], "--tuning", "reference", *found.command[at:]]
        head = [
            text("migrate.is", release=found.release, n=count),
            _command(found.command),
            text("migrate.unchanged"),
            _command(reference),
        ]
    else:
        head = [text("migrate.engine", engine=found.release, n=count), _command(found.command)]
    deliberate = [f"  - {each.render()}" for each in found.plan.reference_differences]
    if deliberate and complete:
        deliberate.insert(0, text("reference.title"))
    elif deliberate:
        deliberate = [text("reference.count", count=len(deliberate))]
    warnings = [text("plan.warning", what=each.render()) for each in found.plan.warnings]
    page = ShortPage(
        head,
        text("migrate.columns").split("|"),
        [
            NotedRow((each.name, _cell(each.reference), _cell(each.ours)), each.reason)
            for each in sorted(found.differences, key=_weight)
        ],
        tail=[*deliberate, *(note.render() for note in found.notes)],
        warnings=warnings,
    )
    page.show(complete=complete)


def _command(words: Sequence[str]) -> Text:
    return command_line("  " + shlex.join(words))


def _weight(each: SettingDifference) -> int:
    """Return the place of a difference: another value, a new setting, one left out."""
    if each.ours is None:
        return 2
    return 1 if each.reference is None else 0


def _cell(value: str | None) -> str:
    return "-" if value is None else value
