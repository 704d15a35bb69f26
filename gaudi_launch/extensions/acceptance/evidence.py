"""The file of a run, for people who did not see the machine; two compared.

No names, addresses and serial numbers: what is not known to be harmless is removed, as from a
support bundle (`commands.doctor.bundle`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from gaudi_launch.commands.doctor.bundle import redactor_of
from gaudi_launch.commands.profiles.evidence import KIND
from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.version import VERSION
from gaudi_launch.core.doctor.findings import DoctorFacts
from gaudi_launch.core.host import snapshot
from gaudi_launch.extensions.acceptance.case import folder, keep
from gaudi_launch.extensions.acceptance.records import AcceptanceRun, facts

# of a run and of a result: numbers and names that need no redaction
_OF_RUN = ("level", "product", "cards", "scale", "counters")
_FIGURES = ("status", "values", "unit", "shares", "seconds")
_SENSOR = re.compile(r"(temp|power|in|curr)\d+_\w+")
# a difference of two runs below it is not shown as one (assumed)
_SAME = 0.03


def document(run: AcceptanceRun, machine: DoctorFacts) -> dict[str, Any]:
    """Return the evidence of a run, redacted."""
    kept = facts()["evidence"]
    redactor, ask = redactor_of(machine.host.hostname), machine.ask
    raw = {
        "host": snapshot.to_json(machine.host),
        "hl_smi": {
            query or "table": "" if ask is None else ask(query.split()).text
            for query in kept["hl_smi"]
        },
        "results": codec.write(run.results),
        "left_out": dict(run.left_out),
    }
    shown: dict[str, Any] = redactor.document(raw)
    return {
        "schema": 1,
        "kind": KIND,
        "gaudi_launch": VERSION,
        **{name: getattr(run, name) for name in _OF_RUN},
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.began)),
        # a folder is read as the machine
        "simulated": machine.config.root != "/",
        # files with versions and numbers only, and figures
        "files": _files(machine, kept["files"]),
        "figures": {
            each.name: {part: getattr(each, part) for part in _FIGURES} for each in run.results
        },
        **shown,
    }


def _files(machine: DoctorFacts, kept: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Return the files of each card by module, those that exist."""
    files = machine.files
    if files is None:
        return {}
    found: dict[str, dict[str, str]] = {}
    for card in machine.host.cards:
        places = {place.format(index=card.index, bus=card.bus): kept[place] for place in kept}
        sensors = f"sys/bus/pci/devices/{card.bus}/hwmon"
        for sensor in files.names(sensors):
            place = f"{sensors}/{sensor}"
            places[place] = [*filter(_SENSOR.fullmatch, files.names(place))]
        texts = {name: files.text(f"{place}/{name}") for place in places for name in places[place]}
        found[str(card.module)] = {
            name: text.strip() for name, text in texts.items() if text is not None
        }
    return found


def write(run: AcceptanceRun, machine: DoctorFacts) -> Path:
    """Write the file of a run and return its path. Raises LaunchError (FAILED)."""
    day = time.strftime("%Y-%m-%d-%H-%M-%S", time.localtime(run.ended))
    path = folder() / f"gaudi-launch-evidence-{run.product or 'no-cards'}-{day}.json"
    keep(path, document(run, machine))
    return path


def last() -> Path:
    """Return the newest file of this machine. Raises LaunchError (USAGE) without one."""
    found = folder().glob("gaudi-launch-evidence-*.json")
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        raise LaunchError("accept.no_last", ExitCode.USAGE)
    return newest


@dataclass(frozen=True)
class RunChange:
    """One figure in two runs, the mean of a step's cards; None where there is none.

    ``ratio`` is after / before - 1. ``differs``: a reader should look at it, for its figure or for
    its verdict.
    """

    step: str
    unit: str
    before: float | None
    after: float | None
    statuses: tuple[str, str]
    ratio: float | None
    differs: bool


def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[RunChange]:
    """Return the steps of either run, with the figures of both."""
    old, new = mapping(one["figures"]), mapping(other["figures"])
    rows = []
    for name in dict.fromkeys((*old, *new)):
        pair = [mapping(each.get(name)) for each in (old, new)]
        values = [mapping(each.get("values")) for each in pair]
        unit = str(pair[1].get("unit") or pair[0].get("unit") or "")
        statuses = (str(pair[0].get("status", "-")), str(pair[1].get("status", "-")))
        # a served model has figures of different kinds, each a row
        both = sorted(set(values[0]) & set(values[1])) if name.startswith("served") else []
        for part in both or [""]:
            chosen = [[each[part]] if part else [*each.values()] for each in values]
            before, after = (fmean(each) if each else None for each in chosen)
            ratio = after / before - 1 if before and after is not None else None
            differs = statuses[0] != statuses[1] or abs(ratio or 0.0) > _SAME
            shown = f"{name} {part}".strip()
            rows.append(RunChange(shown, unit, before, after, statuses, ratio, differs))
    return rows
