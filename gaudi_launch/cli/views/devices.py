"""``gaudi-launch devices``: the cards and who uses them; ``devices pick`` chooses some and says why."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from gaudi_launch.host.records import Card, Host
    from gaudi_launch.planning.plan import Placement

app = typer.Typer(
    help="Show the cards and who uses them; 'devices pick -n 4' chooses.",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
)

_MACHINE = typer.Option(
    None,
    "--machine",
    metavar="FILE|simulated:NAME",
    help="A snapshot file or a simulated machine instead of this one. Names: hls2, gaudi2e-8, gaudi2e-4, "
    "gaudi3-oam, gaudi3-pcie; variants behind '+': busy=MODULES, failed=MODULES, no-driver, no-hl-smi, no-sysfs, "
    "no-smt, bad-tuning, container (simulated:hls2+busy=3,5,7).",
)
_JSON = typer.Option(False, "--json", help="One JSON object on stdout.")


@app.callback(invoke_without_command=True)
def devices(
    ctx: typer.Context,
    machine: str | None = _MACHINE,
    as_json: bool = _JSON,
    sources: bool = typer.Option(False, "--sources", help="Also show where each fact came from."),
) -> None:
    """Show the cards of a machine: index, module, product, bus, NUMA, CPUs, memory, status, who uses each."""
    # both options may stand before 'pick' too
    ctx.obj = (machine, as_json)
    if ctx.invoked_subcommand is not None:
        return
    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.host.machine import load
    from gaudi_launch.messages import text
    from gaudi_launch.services.orphans import orphans

    host = load(machine)
    # processes are this machine's, whatever machine is looked at
    lost = [] if machine is not None else orphans()
    if as_json:
        emit_json({**_document(host), "orphans": [orphan.to_json() for orphan in lost]})
    else:
        _show(host, sources)
        if lost:
            typer.echo(text("services.orphans_there", count=len(lost)), err=True)


@app.command()
def pick(
    ctx: typer.Context,
    cards: int | None = typer.Option(None, "-n", "--cards", help="How many cards (1, 2, 4 or 8). Default 1."),
    modules: str | None = typer.Option(None, "-m", "--modules", metavar="0,1,..", help="These modules."),
    machine: str | None = _MACHINE,
    as_json: bool = _JSON,
    form: str = typer.Option(
        "text", "--format", metavar="text|modules|indices|cpus", help="Print only this, for scripts."
    ),
) -> None:
    """Choose cards as 'serve' would, print them and say why. Takes nothing."""
    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.host.machine import load
    from gaudi_launch.planning.placement import choose, parse_modules, parse_visible

    forms = ("text", "modules", "indices", "cpus")
    if form not in forms:
        raise LaunchError("placement.format", ExitCode.USAGE, found=form, known=", ".join(forms))
    wanted = parse_modules(modules) if modules is not None else None
    visible = parse_visible(os.environ.get("HABANA_VISIBLE_MODULES"))
    earlier_machine, earlier_json = ctx.obj
    host = load(machine if machine is not None else earlier_machine)
    placement = choose(host, cards, wanted, visible)
    document = _pick_document(host, placement)
    if as_json or earlier_json:
        emit_json(document)
    elif form == "text":
        _show_pick(placement)
    elif form == "cpus":
        typer.echo(document["cpus"])
    else:
        typer.echo(",".join("?" if number is None else str(number) for number in document[form]))


def _document(host: Host) -> dict[str, Any]:
    from gaudi_launch.host.cpus import format_cpus

    return {
        "schema": 1,
        "machine": {
            "origin": host.origin,
            "root": host.root,
            "hostname": host.hostname,
            "product": host.product,
            "groups": [list(group) for group in host.groups],
            "driver": host.driver_version,
            "hl_smi": host.hl_smi_version,
            "in_container": host.in_container,
            "virtual_machine": host.virtual_machine,
        },
        "cards": [
            {
                "index": card.index,
                "module": card.module,
                "product": card.product,
                "bus": card.bus,
                "numa_node": card.numa_node,
                "cpus": format_cpus(card.cpus),
                "memory_total_mib": card.memory_total_mib,
                "memory_used_mib": card.memory_used_mib,
                "status": card.status,
                "temperature_c": card.temperature_c,
                "power_w": card.power_w,
                "utilization_percent": card.utilization_percent,
                "uncorrectable_events": card.uncorrectable_events,
                "driver": card.driver,
                "firmware": card.firmware,
                "busy": card.busy,
                "busy_because": card.busy_because,
                "holders": [{"pid": h.pid, "command": h.command, "user": h.user} for h in card.holders],
                "sources": dict(card.sources),
            }
            for card in host.cards
        ],
        "free": list(host.free_modules),
        "unsure": _unsure(host),
        "notes": dict(host.notes),
    }


def _show(host: Host, sources: bool) -> None:
    from rich.markup import escape

    from gaudi_launch.cli.output import console, table
    from gaudi_launch.host.cpus import format_cpus
    from gaudi_launch.messages import text

    out = console()
    columns = text("host.devices_columns").split("|")
    rows = [
        (
            _or_dash(card.index),
            _or_dash(card.module),
            _or_dash(card.product),
            _or_dash(card.bus),
            _or_dash(card.numa_node),
            format_cpus(card.cpus) or "-",
            _memory(card),
            card.status or "-",
            _use(card),
        )
        for card in host.cards
    ]
    if rows:
        out.print(table("", columns, rows, right=(0, 1, 4)))
        groups = "; ".join(",".join(map(str, group)) for group in host.groups) or "-"
        unsure = _unsure(host)
        free = ",".join(str(module) for module in host.free_modules if module not in unsure) or "-"
        out.print(escape(text("host.devices_summary", product=host.product or "?", groups=groups, free=free)))
        if unsure:
            out.print(escape(text("host.devices_unsure", modules=",".join(map(str, unsure)))))
    else:
        out.print(escape(text("host.devices_none")))
    for name, note in host.notes.items():
        out.print(escape(text("host.devices_note", name=name, text=note)), style="yellow")
    if sources:
        for card in host.cards:
            facts = "; ".join(f"{name}: {source}" for name, source in card.sources.items())
            out.print(escape(text("host.devices_sources", index=_or_dash(card.index), facts=facts)))


def _unsure(host: Host) -> list[int]:
    """Modules of which it cannot be told whether they are in use."""
    return sorted(card.module for card in host.cards if card.module is not None and card.busy is None)


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _memory(card: Card) -> str:
    if card.memory_total_mib is None:
        return "-"
    return f"{'?' if card.memory_used_mib is None else card.memory_used_mib} / {card.memory_total_mib} MiB"


def _use(card: Card) -> str:
    from gaudi_launch.messages import text

    if card.busy is None:
        return text("host.devices_use_unknown")
    if not card.busy:
        return text("host.devices_use_free")
    who = "; ".join(f"{h.command or '?'} ({h.pid}{', ' + h.user if h.user else ''})" for h in card.holders)
    reason = (
        text(f"host.devices_use_{card.busy_because}") if card.busy_because else text("host.devices_use_unknown")
    )
    return f"{reason}: {who}" if who else reason


def _pick_document(host: Host, placement: Placement) -> dict[str, Any]:
    from gaudi_launch.host.cpus import format_cpus

    chosen = [host.card(module) for module in placement.modules]
    return {
        "schema": 1,
        "modules": list(placement.modules),
        "indices": [card.index if card else None for card in chosen],
        "cpus": format_cpus(placement.cpus),
        "cpus_by_module": {str(m): format_cpus(cpus) for m, cpus in placement.cpus_by_module.items()},
        "numa_nodes": list(placement.numa_nodes),
        "memory_node": placement.memory_node,
        "reasons": [{"id": reason.id, "message": reason.render()} for reason in placement.reasons],
        "warnings": [{"id": warning.id, "message": warning.render()} for warning in placement.warnings],
    }


def _show_pick(placement: Placement) -> None:
    from rich.markup import escape

    from gaudi_launch.cli.output import console
    from gaudi_launch.messages import text

    out = console()
    out.print(escape(text("host.devices_picked", modules=",".join(map(str, placement.modules)))), style="bold")
    for reason in placement.reasons:
        out.print(f"  {escape(reason.render())}")
    for warning in placement.warnings:
        out.print(escape(text("host.devices_warning", text=warning.render())), style="yellow")
