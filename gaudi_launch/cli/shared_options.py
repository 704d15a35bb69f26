"""Options and arguments of several commands, each stated once."""

from __future__ import annotations

import typer

NAME = typer.Argument(
    None,
    metavar="[NAME]",
    help="A service, its model, or the beginning of one (default: the only running service).",
)
SERVER = typer.Argument(
    None,
    metavar="[URL|NAME]",
    help="A server's address, a service, or its model (default: the only running service).",
)


def _named(machine: str | None) -> str | None:
    if machine is None:
        return None
    # the files of simulated machines take longer to load than most commands
    from gaudi_launch.core.host.machine import named

    return named(machine)


MACHINE = typer.Option(
    None,
    "--machine",
    metavar="MACHINE",
    help="Another machine: a snapshot file, simulated:NAME, or an idle server of gaudi2...",
    callback=_named,
)
ALL = typer.Option(False, "--all", help="Every row and sentence.")
CACHE = typer.Option(
    None, "-c", "--cache", metavar="DIR", help="The cache root (default: the XDG cache folder)."
)
