"""Compare an installed engine's packages with its constraints file.

The files are those that `setup` gives to pip: profiles/engines/constraints.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.doctor.findings import Deviation, Pins
from gaudi_launch.core.engines.detect import Installed, marked
from gaudi_launch.core.engines.releases import constraints_of, release_of

_log = logging.getLogger(__name__)

_SECONDS = 20
_PROGRAM = Path(__file__).parent / "runtime" / "ask_versions.py"
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;#]+)")


def pins_file(installed: Installed) -> str | None:
    """Return the constraints file of exactly the installed version.

    Return None where there is none.
    """
    version = installed.facts.get("plugin", "").partition("+")[0]
    found = release_of(installed.engine, version)
    if found is None or (version and found.version != version):
        return None
    return constraints_of(found)


def pins_in(text: str) -> Mapping[str, tuple[str, ...]]:
    """Return the versions of each package in a constraints file.

    A package with conditions has each of its versions.
    """
    pins: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        pin = _PIN.match(line.strip())
        if pin is not None and pin[2] not in pins.get(pin[1], ()):
            pins[pin[1]] = (*pins.get(pin[1], ()), pin[2])
    return pins


def compare_pins(installed: Installed) -> Pins | None:
    """Query the interpreter for packages that deviate from its engine's file.

    Return None where there is no file for this version, or no answer. Never raises for what the
    interpreter does.
    """
    file = pins_file(installed)
    if file is None:
        return None
    try:
        pins = pins_in(Path(file).read_text(encoding="utf-8"))
        answer = interrupt.run(
            [installed.python, "-c", _PROGRAM.read_text(encoding="utf-8")],
            streams=interrupt.Streams(text_in=json.dumps(pins)),
            seconds=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.debug("the versions of the engine's packages are not known: %s", error)
        return None
    found = _read(answer.stdout)
    if found is None:
        _log.debug("the engine's interpreter gave no versions: %s", answer.stderr[-300:])
        return None
    rows = [
        Deviation(
            name,
            str(found[name].get("version", "")),
            " / ".join(pins[name]),
            tuple(map(str, found[name].get("modules", ()))),
        )
        for name in sorted(found)
        if name in pins
    ]
    return Pins(file, tuple(rows))


def _read(output: str) -> Mapping[str, Mapping[str, Any]] | None:
    try:
        found = parse_json(marked(output))
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        return None
    return found
