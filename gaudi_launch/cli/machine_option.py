"""The option of another machine, apart: reading one takes many modules."""

from __future__ import annotations

import typer


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
