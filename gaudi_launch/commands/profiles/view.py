"""Profiles of models, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gaudi_launch.cli.console import emit_json
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.planning.profiles import Profile, read_document

if TYPE_CHECKING:
    from gaudi_launch.commands.profiles.evidence import RecordedEvidence


def show_file(profile: Profile, as_json: bool) -> None:
    """Print a profile as its file has it."""
    if as_json:
        document = read_document(profile.file)
        emit_json({"schema": 1, "file": str(profile.file), "own": profile.own, "profile": document})
        return
    print(f"# {profile.file}")
    print(profile.file.read_text(encoding="utf-8"), end="")


def show_checked(found: Sequence[Profile], file: str, as_json: bool) -> None:
    """Print that the profiles are good: all of them, or the one in ``file``."""
    if as_json:
        rows = [
            {
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
            for profile in found
        ]
        emit_json({"schema": 1, "good": True, "profiles": rows})
    elif file:
        print(text("profiles.good", path=file, name=found[0].name))
    else:
        print(text("profiles.all_good", count=len(found)))


def show_added(found: RecordedEvidence, as_json: bool) -> None:
    """Print the file of the facts and what follows."""
    if as_json:
        row = {"file": str(found.path), "rows": found.rows, "simulated": found.simulated}
        emit_json({"schema": 1, **row})
    elif found.simulated:
        print(text("evidence.added_simulated", path=found.path))
    else:
        print(text("evidence.added", path=found.path, count=found.rows))
