"""Options of several targets."""

from __future__ import annotations

import typer

OUTPUT_PANEL = "Output"
TO = typer.Option(
    "",
    "--to",
    metavar="DIR|FILE",
    help="Target folder or file (default: stdout).",
    rich_help_panel=OUTPUT_PANEL,
)
STACK = typer.Option(
    "",
    "--stack",
    metavar="FILE",
    help="All models of a stack file and their gateway, instead of one model.",
    rich_help_panel=OUTPUT_PANEL,
)
