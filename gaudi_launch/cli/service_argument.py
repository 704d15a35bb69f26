"""The argument of a command that reads a service."""

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
