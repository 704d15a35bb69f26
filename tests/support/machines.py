"""Machines for tests: a root folder, and a stub hl-smi with fixed answers."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.simulated import write_tree
from gaudi_launch.core.host.simulated_files import SimulatedServer
from tests.support.places import DATA

INDEX_MODULE = "-Q index,module_id -f csv"
NAME = "-Q name -f csv"
TOPO = "topo -c -N"
SMALL = SimulatedServer(
    product="gaudi2e",
    card_name="HL-288",
    slots=((1, "2a"), (0, "aa")),
    cores_per_socket=2,
    cpu_model="Xeon",
)
"""Two cards and eight CPUs."""


def sample(name: str) -> str:
    return (DATA / "hl-smi" / f"{name}.txt").read_text(encoding="utf-8")


def write_stub(folder: Path, answers: Mapping[str, str], otherwise: str = "sys.exit(1)") -> None:
    """Write an hl-smi that prints ``answers[arguments joined by blanks]``.

    It runs ``otherwise`` for all else. Every call is recorded in ``calls`` in its folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "hl-smi"
    program.write_text(
        f"#!{sys.executable} -IS\nimport sys, time\n"
        f"asked = ' '.join(sys.argv[1:])\n"
        f"open({str(folder / 'calls')!r}, 'a').write(asked + '\\n')\n"
        f"answers = {json.dumps(dict(answers))}\n"
        f"if asked in answers:\n    print(answers[asked], end='')\n    sys.exit(0)\n{otherwise}\n",
        encoding="utf-8",
    )
    program.chmod(0o755)


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def use(monkeypatch: pytest.MonkeyPatch, root: Path, programs: Path | None = None) -> None:
    """Make this folder the machine and these programs all that is on PATH."""
    root.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(root))
    monkeypatch.setenv("PATH", str(programs) if programs else str(root / "nothing-here"))


@cache
def _written(name: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="machine-"))
    write_tree(name, folder)
    return folder


def link_tree(name: str, folder: Path) -> Path:
    """Make a simulated machine of links to files that the tests of a process share.

    As `write_tree`, in a fraction of its time; a test that changes a file of the kernel or of the
    system takes that. Programs, locks and shared memory are not shared.
    """
    shared = _written(name)
    for own in ("dev/shm", "run/lock", "tmp"):
        (folder / own).mkdir(parents=True)
    shutil.copytree(shared / "bin", folder / "bin")
    for each in (*shared.iterdir(), *(shared / "dev").iterdir()):
        here = folder / each.relative_to(shared)
        if not here.exists():
            here.symlink_to(each)
    return folder / "bin"


def plain(host: Host) -> Host:
    """Return a Host without what differs between a folder and a machine in memory."""
    return replace(host, root="/", origin="")


def recorded_hosts() -> dict[str, dict[str, Any]]:
    """Return the servers on which the public start scripts were recorded."""
    hosts: dict[str, dict[str, Any]] = json.loads((DATA / "hosts.json").read_text())
    return hosts


def make_recorded(host: dict[str, Any], root: Path) -> Path:
    """Return a recorded server as a nearly empty root, with a stub hl-smi.

    The stub answers the three queries of the scripts. A module in use has a process whose
    /proc/PID/fd leads to its control node, which the scripts look for with lsof.
    """
    programs = root / "bin"
    rows = "".join(f"{index}, {module}\n" for index, module in enumerate(host["idx2mod"]))
    topo = "modID   CPU Affinity    NUMA Affinity    \n-----   ------------    -------------    \n"
    topo += "".join(
        f"{m}       {t['cpu_affinity']}    {t['numa_affinity']}  \n"
        for m, t in host["topo"].items()
    )
    names = "name\n" + f"{host['name']}\n" * len(host["idx2mod"])
    write_stub(programs, {INDEX_MODULE: "index, module_id\n" + rows, NAME: names, TOPO: topo})
    for module in host["used"]:
        folder = root / "proc" / str(500 + module) / "fd"
        folder.mkdir(parents=True)
        (folder.parent / "comm").write_text("engine\n")
        (folder / "9").symlink_to(f"/dev/accel/accel_controlD{host['idx2mod'].index(module)}")
    return programs
