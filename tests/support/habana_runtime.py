"""A stand-in for the container runtime of Gaudi cards, on top of runc.

It follows HabanaAI/gaudi-container-runtime@408d1e7:cmd/habana-container-runtime/main.go, specs.go
and internal/discover/discover.go: on ``create`` of a container with HABANA_VISIBLE_DEVICES (indices
or ``all``) it adds the devices /dev/accel/accelN and accel_controlDN of those cards and
HABANA_VISIBLE_MODULES, the sorted module IDs of /sys/class/accel/accelN/device/module_id; for cards
that do not exist it sets HABANA_RUNTIME_ERROR instead. Modes ``legacy`` and ``cdi``, network
devices and their files are left out. The cards are those of the machine in the folder STUB_MACHINE;
its devices are copies of /dev/null.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

_VISIBLE = "HABANA_VISIBLE_DEVICES"
_CARD = re.compile(r"accel(?:_controlD)?(\d)$")


def main() -> None:
    words = sys.argv[1:]
    if "create" in [word for word in words if not word.startswith("-")]:
        bundle = Path(words[words.index("--bundle") + 1])
        config = bundle / "config.json"
        spec = json.loads(config.read_text())
        edit(spec, Path(os.environ["STUB_MACHINE"]))
        config.write_text(json.dumps(spec))
    os.execvp("runc", ["runc", *words])


def edit(spec: dict[str, Any], machine: Path) -> None:
    """Give a container the cards that its variable names."""
    variables = spec["process"]["env"]
    named = [each.partition("=")[2] for each in variables if each.startswith(_VISIBLE)]
    if not named:
        return
    requested = None if named[0] == "all" else named[0].split(",")
    devices = []
    for path in sorted((machine / "dev/accel").iterdir()):
        card = _CARD.search(path.name)
        if card is not None and (requested is None or card[1] in requested):
            devices.append((card[1], f"/dev/accel/{path.name}"))
    cards = sorted({card for card, _ in devices})
    if not cards:
        variables.append("HABANA_RUNTIME_ERROR=no accelerators found")
        return
    null = Path("/dev/null").stat().st_rdev
    numbers = {"type": "c", "major": os.major(null), "minor": os.minor(null)}
    linux = spec["linux"]
    for _, node in devices:
        linux.setdefault("devices", []).append(
            {**numbers, "path": node, "fileMode": 0o666, "uid": 0, "gid": 0}
        )
    allowed = linux.setdefault("resources", {}).setdefault("devices", [])
    allowed.append({"allow": True, **numbers, "access": "rwm"})
    modules = sorted(module_id(machine, card) for card in cards)
    variables.append(f"HABANA_VISIBLE_MODULES={','.join(modules)}")


def module_id(machine: Path, card: str) -> str:
    """Return the module ID of a card by its number."""
    file = machine / f"sys/class/accel/accel{card}/device/module_id"
    return file.read_text().strip()


if __name__ == "__main__":
    main()
