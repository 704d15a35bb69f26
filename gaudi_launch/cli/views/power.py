"""Power, energy and power limits, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import console, known, table
from gaudi_launch.messages import text
from gaudi_launch.optional import mapped
from gaudi_launch.watch.trails import card_name

if TYPE_CHECKING:
    from gaudi_launch.app.power import PowerReport
    from gaudi_launch.doctor.power_limit import CapChange, CapOutcome
    from gaudi_launch.services.history import DayEnergy

_JOULES_PER_KWH = 3.6e6


def to_json(report: PowerReport) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "schema": 1,
        "host": report.host.host,
        "problem": report.host.problem,
        "documented_range_w": mapped(asdict, report.range),
        "cards": [
            {
                "module": card.module,
                "index": card.index,
                "power_w": card.power_w,
                "power_cap_w": card.power_cap_w,
            }
            for card in report.host.cards
        ],
        "services": [
            {"name": each.name, "power_w": each.power_w, "joules_per_token": each.joules_per_token}
            for each in report.host.services
            if each.alive
        ],
        "energy": [
            {
                "name": each.name,
                "days": [{**asdict(day), "joules_per_token": _per_token(day)} for day in each.days],
            }
            for each in report.energy
        ],
    }


def _per_token(day: DayEnergy) -> float | None:
    if not day.tokens:
        return None
    return day.joules / day.tokens


def show(report: PowerReport) -> None:
    """Print power by card and service, and the energy of each day."""
    out = console()
    cards = sorted(report.host.cards, key=lambda card: (card.module is None, card.module or 0))
    rows = [
        (
            card_name(card.module, card.index),
            known(card.power_w, "{:.0f}"),
            known(card.power_cap_w, "{:.0f}"),
        )
        for card in cards
    ]
    if rows:
        out.print(table("", text("power.card_columns").split("|"), rows, right=(0, 1, 2)))
    else:
        print(text("power.no_card_here"))
    if report.host.problem:
        print(report.host.problem)
    services = [
        (each.name, known(each.power_w, "{:.0f}"), known(each.joules_per_token, "{:.2f}"))
        for each in report.host.services
        if each.alive
    ]
    if services:
        out.print(table("", text("power.service_columns").split("|"), services, right=(1, 2)))
    days = [
        (
            day.day,
            each.name,
            f"{day.joules / _JOULES_PER_KWH:.3f}",
            f"{day.tokens:.0f}",
            known(_per_token(day), "{:.2f}"),
        )
        for each in report.energy
        for day in each.days
    ]
    if days:
        out.print(table("", text("power.day_columns").split("|"), days, right=(2, 3, 4)))
    if report.range is not None:
        print(
            text(
                "power.range_known",
                least=report.range.least_w,
                most=report.range.most_w,
                source=report.range.source,
            )
        )
    print(text("power.measured"))


def commands(changes: Sequence[CapChange]) -> list[str]:
    """Return the hl-smi commands of the changes."""
    return [" ".join(["hl-smi", *change.arguments]) for change in changes]


def outcomes_to_json(outcomes: Sequence[CapOutcome]) -> dict[str, Any]:
    """Return the results of --cap or --undo for programs."""
    return {
        "schema": 1,
        "cards": [
            {
                "module": each.change.module,
                "bus": each.change.bus,
                "status": each.status,
                "before_w": each.change.before_w,
                "requested_w": each.change.after_w,
                "now_w": each.now_w,
                "reason": each.reason,
            }
            for each in outcomes
        ],
    }


def show_outcomes(outcomes: Sequence[CapOutcome]) -> None:
    """Print a line for each card."""
    if not outcomes:
        print(text("power.nothing_to_undo"))
    for each in outcomes:
        change = each.change
        id = f"power.cap_{each.status}"
        print(
            text(
                id, bus=change.bus, before=change.before_w, after=change.after_w, reason=each.reason
            )
        )
