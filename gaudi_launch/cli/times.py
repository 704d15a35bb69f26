"""Options that take a time and have a number of seconds as default."""

from __future__ import annotations

import typer


def _drain(text: str | float) -> float:
    """Return the seconds of --drain; the default comes as a number.

    Raises LaunchError (USAGE).
    """
    from gaudi_launch.core.planning.parse import seconds

    return seconds("--drain", str(text), least=0)


DRAIN = typer.Option(
    30.0, "--drain", metavar="TIME", help="Timeout for running requests: 90, 5m.", parser=_drain
)
