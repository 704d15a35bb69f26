"""Options that take a time and have a number of seconds as default."""

from __future__ import annotations

from typing import Any

import typer


def time_option(
    name: str, default: float, *, help: str, least: float = 0, most: float = 1e9
) -> Any:
    """Return the option of a time: 90, 5m, 1h; its parser raises LaunchError (USAGE)."""

    def read(text: str | float) -> float:
        # the default comes as a number
        from gaudi_launch.core.planning.parse import seconds

        return seconds(name, str(text), least=least, most=most)

    return typer.Option(default, name, metavar="TIME", help=help, parser=read)


DRAIN = time_option("--drain", 30.0, help="Timeout for running requests: 90, 5m.")
