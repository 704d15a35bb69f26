"""Machines for tests: a root folder, and a stub hl-smi with fixed answers."""

from __future__ import annotations

import json
import shlex
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
from gaudi_launch.core.host.hl_smi import CARD_FIELDS
from gaudi_launch.core.host.simulated import write_tree
from gaudi_launch.core.host.simulated_files import SimulatedServer
from gaudi_launch.core.host.stub_hl_smi import answer
from tests.support.places import DATA

INDEX_MODULE = "-Q index,module_id -f csv"
NAME = "-Q name -f csv"
TOPO = "topo -c -N"
_QUERIES = ("", "-L", NAME, TOPO)
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


def write_stub(folder: Path, answers: Mapping[str, str], otherwise: str = "") -> None:
    """Write an hl-smi that prints ``answers[arguments joined by blanks]``.

    It runs ``otherwise``, a program in Python, for all else, or fails. Every call is recorded in
    ``calls`` in its folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = shlex.quote(str(folder / "calls"))
    first = f"# answers = {json.dumps(dict(answers))}\nprintf '%s\\n' \"$*\" >> {kept}\n"
    python = shlex.join((sys.executable, "-IS", "-c", f"import sys, time\n{otherwise}"))
    _write_program(folder / "hl-smi", answers, first, f"exec {python}" if otherwise else "exit 1")


def _write_program(path: Path, answers: Mapping[str, str], first: str, otherwise: str) -> None:
    """Write a program that answers without an interpreter, ten times as fast."""
    cases = "".join(
        f"{shlex.quote(asked)}) printf %s {shlex.quote(text)}; exit ;;\n"
        for asked, text in answers.items()
    )
    path.write_text(f'#!/bin/sh\n{first}case "$*" in\n{cases}esac\n{otherwise}\n', encoding="utf-8")
    path.chmod(0o755)


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
    program = write_tree(name, folder) / "hl-smi"
    if program.exists():
        _answer_quickly(program)
    return folder


def _answer_quickly(program: Path) -> None:
    """Let a simulated hl-smi answer what every load reads without its interpreter.

    Where a limit of power was set, its file has changed: then the program reads it.
    """
    cards = json.loads(program.with_name("hl-smi.json").read_text(encoding="utf-8"))
    asked = [*_QUERIES, *(f"-Q {','.join(fields)} -f csv" for fields in CARD_FIELDS)]
    found = {each: answer(cards, each.split()) for each in asked}
    answers = {each: text for each, (text, code) in found.items() if code == 0}
    program.rename(program.with_name("hl-smi.py"))
    python = f'{shlex.join((sys.executable, "-IS"))} "$0.py"'
    first = (
        f'case "$*" in *-p*) : > "$0.changed" ;; esac\n[ -e "$0.changed" ] && exec {python} "$@"\n'
    )
    _write_program(program, answers, first, f'exec {python} "$@"')


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
