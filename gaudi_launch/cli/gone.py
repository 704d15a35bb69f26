"""The names that went, each with what is used instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import beside


def gone_names() -> Mapping[str, str]:
    """Return the arguments of today by each name that went.

    gone.json has them.
    """
    found: Mapping[str, str] = beside(__file__)
    return found


def refuse_gone(arguments: Sequence[str]) -> None:
    """Raise LaunchError if the arguments begin with a command that went."""
    for length in (2, 1):
        found = " ".join(arguments[:length])
        if found in gone_names():
            raise gone(found)


def gone(found: str) -> LaunchError:
    """Return the error for a name of the table."""
    now = f"gaudi-launch {gone_names()[found]}"
    return LaunchError("usage.gone", ExitCode.USAGE, found=found, now=now)
