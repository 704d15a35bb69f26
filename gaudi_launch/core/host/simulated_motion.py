"""Move the values of a simulated machine with the time.

The curves are made up: they exist so that a screen, an alert and a history have something to show.
A card is hot for two thirds of each minute; a lost card and a link that is down stay so for five of
each ten minutes, longer than the alert rules wait. The time decides all, so a test can choose any
moment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gaudi_launch.core.host.cpus import parse_cpus
from gaudi_launch.core.host.simulated import Machine

_MINUTE = 60.0
_TEN_MINUTES = 600.0
# until the first fault, so that it is seen to begin
_WELL_SECONDS = 20.0
_FAULT_SECONDS = 300.0
_IDLE_W = 90
_COOL_C = 58
_HOT_C = 104
# clock ticks per second in /proc/stat (proc(5), USER_HZ)
_TICKS = 100


def moved(machine: Machine, seconds: float) -> Machine:
    """Return the machine as it is ``seconds`` after its start."""
    files = {**machine.files, "proc/stat": _stat(machine.files, seconds)}
    if machine.hl_smi is None:
        return replace(machine, files=files)
    cards = [_card(card, seconds) for card in machine.hl_smi["cards"]]
    shown = [card for card in cards if card is not None]
    return replace(machine, files=files, hl_smi={**machine.hl_smi, "cards": shown})


def _card(card: dict[str, Any], seconds: float) -> dict[str, Any] | None:
    """Return a card at this time; None while it is off the bus."""
    moves = card["moves"]
    faulty = _WELL_SECONDS <= seconds % _TEN_MINUTES < _WELL_SECONDS + _FAULT_SECONDS
    if "lost" in moves and faulty:
        return None
    news: dict[str, Any] = {}
    if "busy" in moves:
        news.update(_working(card, seconds))
    if "hot" in moves:
        news.update(_heating(seconds))
    if "link-down" in moves and faulty:
        first = min(card["ports"], key=int)
        news["ports"] = {**card["ports"], first: "DOWN"}
    return {**card, **news}


def _working(card: dict[str, Any], seconds: float) -> dict[str, Any]:
    share = 0.75 + 0.2 * math.sin(2 * math.pi * (seconds / 37 + int(card["module_id"]) / 8))
    power = _IDLE_W + (card["cap"] - _IDLE_W) * share * 0.9
    temperature = 40 + 30 * share
    return {
        "utilization.aip": round(100 * share),
        "power.draw": round(power),
        "temperature.aip": round(temperature),
    }


def _heating(seconds: float) -> dict[str, Any]:
    """Return a card that heats up for 20 s of each minute, then throttles."""
    at = seconds % _MINUTE
    rise = min(1.0, at / _WELL_SECONDS)
    before = int(seconds // _MINUTE) * 400
    slowdowns = ["thermal"] * (rise >= 1.0)
    return {
        "temperature.aip": round(_COOL_C + (_HOT_C - _COOL_C) * rise),
        "slowdowns": slowdowns,
        "stats.violation.thermal": 1250 + before + round(max(0.0, at - _WELL_SECONDS) * 10),
    }


def _stat(files: Mapping[str, str], seconds: float) -> str:
    """Return /proc/stat (proc(5)): node 0 is 30 % busy, the others 10 %."""
    lines = []
    for node, share in enumerate([0.3] + 7 * [0.1]):
        cpus = files.get(f"sys/devices/system/node/node{node}/cpulist", "").strip()
        busy = int(seconds * _TICKS * share)
        idle = int(seconds * _TICKS) - busy
        lines += [f"cpu{cpu} {busy} 0 0 {idle} 0 0 0 0 0 0" for cpu in parse_cpus(cpus)]
    return "\n".join(lines) + "\n"
