"""The cards of a machine, and a choice of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gaudi_launch.cli.console import console, known, say, sentences
from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.core.base.locks import Holder
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.host.hardware import Card, Host
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.services.energy import DayEnergy
from gaudi_launch.core.services.state.orphans import Orphan


@dataclass(frozen=True)
class DeviceUse:
    """The energy of services today by module ID, and the processes of dead launchers."""

    energy: Mapping[int, DayEnergy] = field(default_factory=dict)
    lost: Sequence[Orphan] = ()

    def joules_per_token(self, card: Card) -> float | None:
        return mapped(lambda energy: energy.joules_per_token, self._of(card))

    def kwh(self, card: Card) -> float | None:
        return mapped(lambda energy: energy.kwh, self._of(card))

    def _of(self, card: Card) -> DayEnergy | None:
        return mapped(self.energy.get, card.module)


def to_json(host: Host, use: DeviceUse) -> dict[str, Any]:
    """Return a machine's cards and their use, for programs."""
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
                "power_cap_w": card.power_cap_w,
                "joules_per_token": use.joules_per_token(card),
                "kwh_today": use.kwh(card),
                "utilization_percent": card.utilization_percent,
                "uncorrectable_events": card.uncorrectable_events,
                "driver": card.driver,
                "firmware": card.firmware,
                "busy": card.busy,
                "busy_because": card.busy_because,
                "holders": [asdict(holder) for holder in card.holders],
                "sources": dict(card.sources),
            }
            for card in host.cards
        ],
        "free": list(host.free_modules),
        "unsure": _unsure(host),
        "notes": dict(host.notes),
        "orphans": [orphan.to_json() for orphan in use.lost],
    }


def show(host: Host, use: DeviceUse, machine: str | None, *, complete: bool) -> None:
    """Print how many cards are free, what to do, and a row for each card, by module."""
    notes = [text("host.devices_note", name=name, text=note) for name, note in host.notes.items()]
    if not host.cards:
        page = ShortPage([text("host.devices_none"), next_line("gaudi-launch doctor")], tail=notes)
        page.show(complete=complete)
        return
    cards = sorted(host.cards, key=lambda card: (card.module is None, card.module, card.index))
    groups = "; ".join(map(format_cpus, host.groups)) or text("host.devices_unknown")
    product = host.product or text("host.devices_unknown")
    summary = text("host.devices_summary", product=product, groups=groups)
    page = ShortPage(
        [_free(host), next_line(_next(host, machine))],
        text("host.devices_columns" if complete else "host.devices_short").split("|"),
        [NotedRow(_cells(card, use, complete=complete)) for card in cards],
        right=(0, 1, 4, 6, 7, 8, 9) if complete else (0, 1, 2, 3),
        tail=[*_commands(cards), summary, *notes],
    )
    page.show(complete=complete)
    if use.lost:
        say(text("services.orphans_there", count=len(use.lost)))


def _free(host: Host) -> str:
    """Return how many cards are free, and their modules."""
    unsure = _unsure(host)
    free = [module for module in host.free_modules if module not in unsure]
    answer = text("host.devices_none_free", n=len(host.cards))
    if free:
        modules = format_cpus(free)
        answer = text("host.devices_free", n=len(host.cards), free=len(free), modules=modules)
    if not unsure:
        return answer
    return sentences(answer, text("host.devices_unsure", modules=format_cpus(unsure)))


def _next(host: Host, machine: str | None) -> str:
    if machine is not None:
        return f"gaudi-launch plan MODEL --machine {shlex.quote(machine)}"
    if host.free_modules:
        return "gaudi-launch serve MODEL"
    return "gaudi-launch ps"


def _cells(card: Card, use: DeviceUse, *, complete: bool) -> tuple[str, ...]:
    """Return the cells of a card; ``complete``: with its place and its energy."""
    memory = _memory(card)
    power = f"{known(card.power_w)} / {known(card.power_cap_w)}"
    if not complete:
        return known(card.module), known(card.index), memory, power, _use(card)
    return (
        known(card.module),
        known(card.index),
        known(card.product),
        known(card.bus),
        known(card.numa_node),
        format_cpus(card.cpus) or "-",
        memory,
        power,
        known(use.joules_per_token(card), "{:.2f}"),
        known(use.kwh(card), "{:.2f}"),
        card.status or "-",
        _use(card),
    )


def _unsure(host: Host) -> list[int]:
    """Return the modules of which it is unknown whether they are in use."""
    return sorted(
        card.module for card in host.cards if card.module is not None and card.busy is None
    )


def _memory(card: Card) -> str:
    if card.memory_total_mib is None:
        return "-"
    used = known(mapped(lambda mib: mib / 1024, card.memory_used_mib), "{:.1f}")
    return f"{used} / {card.memory_total_mib / 1024:.0f}"


def _holder(holder: Holder) -> str:
    """Return a process as its ID and, where it is known, its user."""
    return ", ".join(filter(None, (f"pid {holder.pid}", holder.user)))


def _use(card: Card) -> str:
    """Return why a card is in use, and by whom."""
    if card.busy is None or (card.busy and not card.busy_because):
        return text("host.devices_use_unknown")
    if not card.busy:
        return text("host.devices_use_free")
    reason = text(f"host.devices_use_{card.busy_because}")
    who = "; ".join(map(_holder, card.holders))
    if card.busy_because == "status":
        who = card.status or ""
    if not who:
        return reason
    return text("common.pair", label=reason, value=who)


def _commands(cards: Sequence[Card]) -> list[str]:
    """Return the commands that use cards, each once with the modules of its cards."""
    modules: dict[str, list[int]] = {}
    for card in cards:
        for holder in card.holders:
            if holder.command and card.module is not None:
                modules.setdefault(holder.command, []).append(card.module)
    return [
        text("host.devices_command", modules=format_cpus(each), command=command)
        for command, each in modules.items()
    ]


def pick_to_json(host: Host, placement: Placement) -> dict[str, Any]:
    """Return the chosen cards for programs."""
    chosen = [host.card(module) for module in placement.modules]
    return {
        "schema": 1,
        "modules": list(placement.modules),
        "indices": [card.index if card else None for card in chosen],
        "cpus": format_cpus(placement.cpus),
        "cpus_by_module": {
            str(m): format_cpus(cpus) for m, cpus in placement.cpus_by_module.items()
        },
        "numa_nodes": list(placement.numa_nodes),
        "memory_node": placement.memory_node,
        "reasons": [reason.to_json() for reason in placement.reasons],
        "warnings": [warning.to_json() for warning in placement.warnings],
    }


def show_pick(placement: Placement) -> None:
    """Print the chosen cards and the reasons."""
    out = console()
    out.print(
        text("host.devices_picked", modules=",".join(map(str, placement.modules))),
        style="bold",
    )
    for reason in placement.reasons:
        out.print(f"  {reason.render()}")
    for warning in placement.warnings:
        out.print(text("host.devices_warning", text=warning.render()), style="yellow")
