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
ALL = typer.Option(False, "--all", help="Every row and sentence.")
CACHE = typer.Option(
    None, "-c", "--cache", metavar="DIR", help="The cache root (default: the XDG cache folder)."
)
