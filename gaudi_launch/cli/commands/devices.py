"""``gaudi-launch devices``: the cards and their users.

``devices pick`` selects some and gives the reasons.
"""

from __future__ import annotations

import os

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.optional import mapped

app = CommandApp(
    help="Show the cards and their users; 'devices pick -n 4' selects some.",
)

_MACHINE = typer.Option(
    None,
    "--machine",
    metavar="FILE|simulated:NAME",
    help="A snapshot file or a simulated machine instead of this one. Names: hls2, gaudi2e-8, "
    "gaudi2e-4, gaudi3-oam, gaudi3-pcie; variants after '+': busy=MODULES, failed=MODULES, "
    "no-driver, no-hl-smi, no-sysfs, no-smt, bad-tuning, container, amd, hot=MODULES, "
    "pending-rows=MODULES, capped=MODULES, link-down=MODULES, lost=MODULES, old-fit "
    "(simulated:hls2+busy=3,5,7).",
)
_JSON = typer.Option(False, "--json", help="One JSON object on stdout.")


@app.callback(invoke_without_command=True)
def devices(
    ctx: typer.Context,
    machine: str | None = _MACHINE,
    as_json: bool = _JSON,
    sources: bool = typer.Option(False, "--sources", help="Also show where each fact came from."),
) -> None:
    """Show the cards: index, module, product, PCI address, NUMA, CPUs, memory, status, users."""
    # both options may come before 'pick' too
    ctx.obj = (machine, as_json)
    if ctx.invoked_subcommand is not None:
        return
    from gaudi_launch.app.machine import load
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.devices import show, to_json
    from gaudi_launch.services.state.orphans import orphans

    host = load(machine)
    # processes are this machine's, whatever machine is inspected
    lost = [] if machine is not None else orphans()
    if as_json:
        emit_json(to_json(host, lost))
    else:
        show(host, lost, sources=sources)


@app.command()
def pick(
    ctx: typer.Context,
    cards: int | None = typer.Option(
        None, "-n", "--cards", help="Number of cards: 1, 2, 4 or 8 (default 1)."
    ),
    modules: str | None = typer.Option(
        None, "-m", "--modules", metavar="0,1,..", help="Module IDs to use."
    ),
    machine: str | None = _MACHINE,
    as_json: bool = _JSON,
    form: str = typer.Option(
        "text",
        "--format",
        metavar="text|modules|indices|cpus",
        help="Print only this value, for scripts.",
    ),
) -> None:
    """Print the cards that 'serve' would select, with the reasons, without reserving them."""
    from gaudi_launch.app.machine import load
    from gaudi_launch.cli.console import emit_json, known
    from gaudi_launch.cli.views.devices import pick_to_json, show_pick
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.planning.placement import choose, parse_modules, parse_visible

    forms = ("text", "modules", "indices", "cpus")
    if form not in forms:
        raise LaunchError("placement.format", ExitCode.USAGE, found=form, known=", ".join(forms))
    wanted = mapped(parse_modules, modules)
    visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))
    earlier_machine, earlier_json = ctx.obj
    host = load(machine if machine is not None else earlier_machine)
    placement = choose(host, cards, wanted, visible)
    document = pick_to_json(host, placement)
    if as_json or earlier_json:
        emit_json(document)
    elif form == "text":
        show_pick(placement)
    elif form == "cpus":
        typer.echo(document["cpus"])
    else:
        typer.echo(",".join(known(number, unknown="?") for number in document[form]))
