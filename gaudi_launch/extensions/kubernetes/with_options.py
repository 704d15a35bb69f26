"""The launch options inside the value of ``--with``, parsed as for any command."""

from __future__ import annotations

import shlex

import typer
import typer.main

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand
from gaudi_launch.core.base.errors import ExitCode, LaunchError

_parser = CommandApp()


@_parser.command(cls=RecordCommand)
def _options(options: LaunchOptions = Launch) -> LaunchOptions:
    """Read the options of ``--with`` as those of any command."""
    return options


def read_with(text: str) -> LaunchOptions:
    """Return the options in ``--with '-w MODEL -n 1'``.

    Raises LaunchError (USAGE), or what the parser raises.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise LaunchError("kubernetes.words", ExitCode.USAGE, found=text, why=str(error)) from None
    command = typer.main.get_command(_parser)
    found = command(args=words, prog_name="--with", standalone_mode=False)
    if not isinstance(found, LaunchOptions):
        # --help has printed its text
        raise typer.Exit()
    return found
