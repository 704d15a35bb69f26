"""``gaudi-launch devices``: the cards and their users.

``devices pick`` selects some and gives the reasons, ``devices power`` sets their power limits,
``devices snapshot`` writes the machine to a file.
"""

from __future__ import annotations

import os

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.console import emit_json, known
from gaudi_launch.cli.machine_option import MACHINE
from gaudi_launch.commands.devices.view import DeviceUse, pick_to_json, show, show_pick, to_json
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.optional import mapped, value_or
from gaudi_launch.core.launch.machine import load

app = CommandApp(
    help="Show the cards and their users; 'devices pick -n 4' selects some.\n\nJ/token and kWh are "
    "those of the service that uses the card, with all its cards, since midnight.\n\nSimulated "
    "machines: hls2, gaudi2e-8, gaudi2e-4, gaudi3-oam, gaudi3-pcie; variants after '+': "
    "busy=MODULES, failed=MODULES, no-driver, no-hl-smi, no-sysfs, no-smt, bad-tuning, container, "
    "amd, hot=MODULES, pending-rows=MODULES, capped=MODULES, link-down=MODULES, lost=MODULES, "
    "old-fit (simulated:hls2+busy=3,5,7).",
)


@app.callback(invoke_without_command=True)
def devices(
    ctx: typer.Context,
    machine: str | None = MACHINE,
    everything: bool = typer.Option(
        False, "--all", help="Also PCI address, NUMA, CPUs and energy of each card."
    ),
    as_json: bool = JSON,
) -> None:
    """Show which cards are free, and memory, power, status and users of each."""
    # both options may come before a subcommand too
    ctx.obj = (machine, as_json)
    if ctx.invoked_subcommand is not None:
        return
    from gaudi_launch.core.services.energy import energy_of_modules
    from gaudi_launch.core.services.state.orphans import orphans

    host = load(machine)
    # services and processes are this machine's, whatever machine is inspected
    use = DeviceUse()
    if machine is None:
        use = DeviceUse(energy_of_modules(), orphans())
    if as_json:
        emit_json(to_json(host, use))
    else:
        show(host, use, machine, complete=everything)


def given(ctx: typer.Context, machine: str | None, as_json: bool) -> tuple[str | None, bool]:
    """Return --machine and --json, which may also be given before a subcommand."""
    earlier_machine, earlier_json = ctx.obj
    return value_or(machine, earlier_machine), as_json or earlier_json


@app.command()
def pick(
    ctx: typer.Context,
    cards: int | None = typer.Option(
        None, "-n", "--cards", metavar="N", help="Number of cards: 1, 2, 4 or 8 (default 1)."
    ),
    modules: str | None = typer.Option(
        None, "-m", "--modules", metavar="LIST", help="Module IDs to use."
    ),
    machine: str | None = MACHINE,
    as_json: bool = JSON,
    form: str = typer.Option(
        "text",
        "--format",
        metavar="text|modules|indices|cpus",
        help="Print only this value, for scripts.",
    ),
) -> None:
    """Print the cards that 'serve' would select; reserve none."""
    from gaudi_launch.core.planning.parse import parse_modules
    from gaudi_launch.core.planning.placement import choose, parse_visible

    forms = ("text", "modules", "indices", "cpus")
    if form not in forms:
        raise LaunchError("placement.format", ExitCode.USAGE, found=form, known=", ".join(forms))
    wanted = mapped(parse_modules, modules)
    visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))
    machine, as_json = given(ctx, machine, as_json)
    host = load(machine)
    placement = choose(host, cards, wanted, visible)
    document = pick_to_json(host, placement)
    if as_json:
        emit_json(document)
    elif form == "text":
        show_pick(placement)
    elif form == "cpus":
        typer.echo(document["cpus"])
    else:
        typer.echo(",".join(known(number, unknown="?") for number in document[form]))
