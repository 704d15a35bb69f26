"""Commands that run until Ctrl-C: it is their end, not an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from gaudi_launch.core.base.errors import ExitCode


@contextmanager
def until_ctrl_c() -> Iterator[None]:
    """End the command with 130 at a Ctrl-C in the block, and print nothing."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
