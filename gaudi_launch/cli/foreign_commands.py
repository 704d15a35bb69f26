"""Commands of other tools and their names here, for hints in usage errors.

foreign_commands.json has those of docker, kubectl, vllm, ollama, pip and systemctl.
"""

from __future__ import annotations

from collections.abc import Mapping

from gaudi_launch.core.base.reader import beside


def foreign_commands() -> Mapping[str, str]:
    """Return our arguments by the name of another tool's command."""
    found: Mapping[str, str] = beside(__file__)
    return found


def foreign_command(name: str) -> str | None:
    """Return this program's arguments for another tool's command.

    Return None where no command does the same.
    """
    ours = foreign_commands().get(name.lower())
    return None if ours is None else f"gaudi-launch {ours}"
