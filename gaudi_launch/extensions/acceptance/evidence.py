"""The file of a run, for people who did not see the machine; two compared.

No names, addresses and serial numbers: what is not known to be harmless is removed, as from a
support bundle (`commands.doctor.bundle`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.commands.doctor.bundle import Redactor
from gaudi_launch.commands.profiles.evidence import KIND
from gaudi_launch.core.base import codec, paths
from gaudi_launch.core.base.errors import file_error
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.version import VERSION
from gaudi_launch.core.doctor.findings import DoctorFacts
from gaudi_launch.core.host import snapshot
from gaudi_launch.extensions.acceptance.case import folder
from gaudi_launch.extensions.acceptance.judge import facts
from gaudi_launch.extensions.acceptance.records import AcceptanceRun, StepResult

_SENSOR = re.compile(r"(temp|power|in|curr)\d+_\w+")
# a difference of two runs below it is not shown as one (assumed)
_SAME = 0.03


def document(run: AcceptanceRun, machine: DoctorFacts) -> dict[str, Any]:
    """Return the evidence of a run, redacted."""
    kept = facts()["evidence"]
    names = tuple(name for name in (machine.host.hostname,) if name and len(name) > 2)
    redactor = Redactor(names=names)
    raw = {
        "host": snapshot.to_json(machine.host),
        "hl_smi": {query or "table": _asked(machine, query) for query in kept["hl_smi"]},
        "results": codec.write(run.results),
        "left_out": dict(run.left_out),
    }
    shown: dict[str, Any] = redactor.document(raw)
    return {
        "schema": 1,
        "kind": KIND,
        "gaudi_launch": VERSION,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.began)),
        "level": run.level,
        "product": run.product,
        "cards": list(run.cards),
        "scale": run.scale,
        # a folder is read as the machine
        "simulated": machine.config.root != "/",
        "counters": codec.write(run.counters),
        # files with versions and numbers only, and figures
        "files": _files(machine, kept),
        "figures": {each.name: _figure(each) for each in run.results},
        **shown,
    }


def _figure(result: StepResult) -> dict[str, Any]:
    return {
        "status": result.status,
        "values": dict(result.values),
        "unit": result.unit,
        "shares": {who: round(share, 4) for who, share in result.shares.items()},
        "seconds": round(result.seconds, 1),
    }


def _asked(machine: DoctorFacts, query: str) -> str:
    return machine.ask(query.split()).text if machine.ask is not None else ""


def _files(machine: DoctorFacts, kept: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Return the files of each card by module, those that exist."""
    found: dict[str, dict[str, str]] = {}
    files = machine.files
    if files is None:
        return {}
    for card in machine.host.cards:
        driver = f"sys/class/accel/accel{card.index}/device"
        pci = f"sys/bus/pci/devices/{card.bus}"
        places = [(driver, name) for name in kept["driver"]]
        places += [(pci, name) for name in kept["pci"]]
        for sensor in files.names(f"{pci}/hwmon"):
            names = filter(_SENSOR.fullmatch, files.names(f"{pci}/hwmon/{sensor}"))
            places += [(f"{pci}/hwmon/{sensor}", name) for name in names]
        texts = {name: files.text(f"{place}/{name}") for place, name in places}
        found[str(card.module)] = {
            name: text.strip() for name, text in texts.items() if text is not None
        }
    return found


def write(run: AcceptanceRun, machine: DoctorFacts) -> Path:
    """Write the file of a run and return its path. Raises LaunchError (FAILED)."""
    day = time.strftime("%Y-%m-%d-%H-%M-%S", time.localtime(run.ended))
    path = folder() / f"gaudi-launch-evidence-{run.product or 'no-cards'}-{day}.json"
    text = json.dumps(document(run, machine), ensure_ascii=False, indent=1) + "\n"
    try:
        paths.write_whole(path, text, mode=0o600)
    except OSError as error:
        raise file_error("accept.state", error, path) from None
    return path


def last() -> Path | None:
    """Return the newest file of this machine; None without one."""
    found = sorted(
        folder().glob("gaudi-launch-evidence-*.json"), key=lambda path: path.stat().st_mtime
    )
    return found[-1] if found else None


@dataclass(frozen=True)
class RunChange:
    """One figure in two runs, the mean of a step's cards; None where there is none."""

    step: str
    unit: str
    before: float | None
    after: float | None
    statuses: tuple[str, str]

    @property
    def ratio(self) -> float | None:
        """Return after / before - 1; None without two figures."""
        if not self.before or self.after is None:
            return None
        return self.after / self.before - 1

    @property
    def differs(self) -> bool:
        """Report whether a reader should look at it: a figure, or a verdict."""
        ratio = self.ratio
        return self.statuses[0] != self.statuses[1] or (ratio is not None and abs(ratio) > _SAME)


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[RunChange]:
    """Return the steps of either run, with the figures of both."""
    old, new = mapping(before["figures"]), mapping(after["figures"])
    rows = []
    for name in dict.fromkeys((*old, *new)):
        pair = [mapping(each.get(name)) for each in (old, new)]
        names = set(mapping(pair[0].get("values"))) & set(mapping(pair[1].get("values")))
        # a served model has figures of different kinds, each a row
        parts = sorted(names) if name.startswith("served") else [""]
        for part in parts or [""]:
            means = [_mean(mapping(each.get("values")), part) for each in pair]
            unit = str(pair[1].get("unit") or pair[0].get("unit") or "")
            statuses = (str(pair[0].get("status", "-")), str(pair[1].get("status", "-")))
            shown = f"{name} {part}".strip()
            rows.append(RunChange(shown, unit, means[0], means[1], statuses))
    return rows


def _mean(values: Mapping[str, Any], part: str) -> float | None:
    chosen = [float(value) for who, value in values.items() if not part or who == part]
    return sum(chosen) / len(chosen) if chosen else None
