"""The machine of a command: this one, a simulated one, or a snapshot file.

Every command reads its machine here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.host import simulated
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.read import read_host
from gaudi_launch.core.host.simulated import NAMES, PRODUCTS
from gaudi_launch.core.host.snapshot import from_json

SIMULATED = "simulated:"


def load(machine: str | None = None) -> Host:
    """Return the Host of ``--machine``.

    None reads the live machine under GAUDI_LAUNCH_ROOT, ``simulated:NAME`` creates one (see
    `simulated`), a product is an idle server of it, anything else is a snapshot file. Raises
    LaunchError (USAGE) for an unknown name, an unreadable file or a document that is not a
    snapshot.
    """
    if machine is None:
        check_root(None)
        return read_host(paths.machine_root())
    machine = named(machine)
    if machine.startswith(SIMULATED):
        return simulated.make(machine.removeprefix(SIMULATED))
    from dataclasses import replace

    return replace(from_json(load_document(machine)), origin=f"snapshot {machine}")


def named(machine: str) -> str:
    """Return the simulated server of a product; other names and files unchanged."""
    if Path(machine).exists():
        return machine
    return simulated.server_of(machine.lower()) or machine


def check_root(machine: str | None) -> None:
    """Raise LaunchError (USAGE) when the live machine's root is not a folder."""
    root = paths.machine_root()
    if machine is None and not root.is_dir():
        raise LaunchError("host.root", ExitCode.USAGE, path=str(root))


def load_document(path: str) -> dict[str, Any]:
    """Return the JSON object of a snapshot file, before it is judged.

    Raises LaunchError (USAGE).
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        known = ", ".join([*PRODUCTS, *(f"{SIMULATED}{name}" for name in NAMES)])
        raise LaunchError(
            "host.snapshot_file", ExitCode.USAGE, path=path, reason=reason, known=known
        ) from None
    try:
        document = parse_json(text)
    except ValueError as error:
        raise LaunchError(
            "host.snapshot_json", ExitCode.USAGE, path=path, reason=str(error)
        ) from None
    if not isinstance(document, dict):
        raise LaunchError("host.snapshot_json", ExitCode.USAGE, path=path, reason="not an object")
    return document
