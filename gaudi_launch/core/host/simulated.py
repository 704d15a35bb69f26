"""Simulated machines: ``simulated:hls2`` and variants, in memory or as a folder.

A name is a box and, joined with ``+``, its variants: ``hls2+busy=3,5,7``,
``gaudi3-oam+bad-tuning+failed=2``. The boxes are well tuned. The files are made once
(`simulated_files`) and read by the code that reads a live machine, so a simulated Host has the form
of a real one.
"""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.host import simulated_files, stub_hl_smi
from gaudi_launch.core.host.files import Files, Imagined, whole_number
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.hl_smi import HlSmiOutput
from gaudi_launch.core.host.read import assemble
from gaudi_launch.core.host.simulated_files import SimulatedServer


def _slots(text: str) -> tuple[tuple[int, str], ...]:
    """Return (module, bus) by index, written as `MODULE:BUS`."""
    pairs = (slot.split(":") for slot in text.split())
    return tuple((int(module), bus) for module, bus in pairs)


# index -> (module, bus) of hls2: HabanaAI/Setup_and_Install@b626de8:utils/intel_gaudi_health_screen
# README. Buses of gaudi2e: Gaudi2E 1.23.0 manual; of gaudi3: ibm-cloud-docs/openshift. The rest is
# made up.
BOXES: Mapping[str, SimulatedServer] = {
    "hls2": SimulatedServer(
        product="gaudi2",
        card_name="HL-225",
        slots=_slots("3:19 7:b3 2:1a 6:b4 1:33 5:cc 0:34 4:cd"),
        cores_per_socket=40,
        cpu_model="Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz",
    ),
    "gaudi2e-8": SimulatedServer(
        product="gaudi2e",
        card_name="HL-288",
        slots=_slots("2:2a 6:aa 3:29 7:ab 0:3a 4:bb 1:3b 5:bc"),
        cores_per_socket=48,
        cpu_model="Intel(R) Xeon(R) Platinum 8468",
    ),
    "gaudi2e-4": SimulatedServer(
        product="gaudi2e",
        card_name="HL-288",
        slots=_slots("1:2a 0:29 3:ab 2:aa"),
        cores_per_socket=32,
        cpu_model="Intel(R) Xeon(R) Gold 6448Y",
    ),
    "gaudi3-oam": SimulatedServer(
        product="gaudi3",
        card_name="HL-325L",
        slots=_slots("3:a3 2:ad 1:b7 0:c1 7:cb 6:d5 5:df 4:e9"),
        cores_per_socket=56,
        cpu_model="Intel(R) Xeon(R) Platinum 8480+",
    ),
    "gaudi3-pcie": SimulatedServer(
        product="gaudi3-pcie",
        card_name="HL-338",
        slots=_slots("0:29 1:2a 2:3a 3:3b 4:aa 5:ab 6:bb 7:bc"),
        cores_per_socket=56,
        cpu_model="Intel(R) Xeon(R) Platinum 8480+",
    ),
}
NAMES = tuple(BOXES)

# variant -> (takes modules, what it does)
VARIANTS: Mapping[str, tuple[bool, str]] = {
    "busy": (True, "these modules are held by a process"),
    "failed": (True, "these modules failed to initialise"),
    "no-driver": (False, "the habanalabs driver is not loaded"),
    "no-hl-smi": (False, "hl-smi is not installed"),
    "no-sysfs": (False, "only hl-smi shows the cards"),
    "no-smt": (False, "one CPU a core"),
    "bad-tuning": (
        False,
        "governor, C-states, NUMA balancing, huge pages, limits, docker as on a fresh system",
    ),
    "container": (False, "seen from inside a container"),
    "amd": (False, "AMD processors, whose IOMMU is on without a kernel argument"),
    "hot": (True, "these modules are too hot and slow down"),
    "pending-rows": (True, "these modules wait for a power cycle to replace memory rows"),
    "capped": (True, "these modules have a power limit below their product's"),
    "link-down": (True, "when watched, one port of these modules is down for 5 of each 10 minutes"),
    "lost": (True, "when watched, these modules are lost for 5 of each 10 minutes"),
    "old-fit": (False, "the boot image is older than the SPI firmware can start with"),
}


@dataclass(frozen=True)
class Machine:
    """A simulated machine: its files and links by path, and the data of its hl-smi.

    ``hl_smi`` is None where hl-smi is not installed.
    """

    name: str
    files: Mapping[str, str]
    links: Mapping[str, str]
    hl_smi: dict[str, Any] | None

    @cached_property
    def view(self) -> Files:
        """Return the files as the readers of `host` and `doctor` want them."""
        return Imagined(self.files, self.links)

    def ask(self, arguments: Sequence[str]) -> HlSmiOutput:
        """Return the output of this machine's hl-smi."""
        assert self.hl_smi is not None
        text, code = stub_hl_smi.answer(self.hl_smi, list(arguments))
        problem = None
        if code:
            problem = (
                f"'{' '.join(['hl-smi', *arguments])}' ended with exit code {code}: {text.strip()}"
            )
        return HlSmiOutput(text, problem)


PRODUCTS = tuple(dict.fromkeys(box.product for box in BOXES.values()))


@lru_cache(maxsize=16)
def make(name: str) -> Host:
    """Return the Host of a simulated machine, read once.

    Raises LaunchError (USAGE) for a name or variant that is not known.
    """
    machine = build(name)
    host = assemble(machine.view, machine.ask if machine.hl_smi is not None else None)
    return replace(host, origin=f"simulated:{name}")


def server_of(product: str) -> str | None:
    """Return the ``--machine`` of a full server of a product, or None."""
    found = [name for name, box in BOXES.items() if box.product == product]
    if not found:
        return None
    return f"simulated:{max(found, key=lambda name: len(BOXES[name].slots))}"


@lru_cache(maxsize=16)
def build(name: str) -> Machine:
    """Return the machine of this name as files.

    Raises LaunchError (USAGE) as `make` does.
    """
    word, *variants = name.split("+")
    if word not in BOXES:
        raise LaunchError(
            "host.unknown_machine", ExitCode.USAGE, found=word, known=", ".join(NAMES)
        )
    box = BOXES[word]
    modules = sorted(module for module, _ in box.slots)
    options: dict[str, tuple[int, ...]] = {}
    for variant in variants:
        key, equals, text = variant.partition("=")
        if key not in VARIANTS or bool(equals) != VARIANTS[key][0]:
            known = ", ".join(f"{v}=MODULES" if takes else v for v, (takes, _) in VARIANTS.items())
            raise LaunchError("host.unknown_variant", ExitCode.USAGE, found=variant, known=known)
        numbers = [whole_number(part) for part in text.split(",")] if equals else []
        if any(number not in modules for number in numbers):
            raise LaunchError(
                "host.variant_modules",
                ExitCode.USAGE,
                found=variant,
                machine=word,
                known=",".join(map(str, modules)),
                word=key,
            )
        options[key] = tuple(number for number in numbers if number is not None)
    if "no-smt" in options:
        box = replace(box, smt=False)
    files, links = simulated_files.files_of(box, options)
    if "no-hl-smi" in options:
        return Machine(name, files, links, None)
    return Machine(name, files, links, simulated_files.hl_smi_of(box, options))


def write_tree(name: str, folder: Path, files: Mapping[str, str | None] | None = None) -> Path:
    """Write the machine as a folder for GAUDI_LAUNCH_ROOT; return its PATH folder.

    ``files`` changes single files by path (None leaves one out). The folder is created; hl-smi is a
    small Python program in ``bin``, with its data in the same folder.
    """
    return write_machine(build(name), folder, files)


def write_machine(
    machine: Machine, folder: Path, files: Mapping[str, str | None] | None = None
) -> Path:
    """Write a machine that was already built, as `write_tree` does."""
    wanted = {
        path: text for path, text in {**machine.files, **(files or {})}.items() if text is not None
    }
    parents = {path.rpartition("/")[0] for path in (*wanted, *machine.links)}
    for path in sorted({*parents, "run/lock", "tmp", "dev/shm", "bin"}):
        (folder / path).mkdir(parents=True, exist_ok=True)
    for path, text in wanted.items():
        _write(folder / path, text)
    for path, target in machine.links.items():
        (folder / path).symlink_to(target)
    programs = folder / "bin"
    if machine.hl_smi is not None:
        source = Path(stub_hl_smi.__file__).read_text(encoding="utf-8")
        _write(programs / "hl-smi", f"#!{sys.executable} -IS\n{source}")
        (programs / "hl-smi").chmod(
            stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH
        )
        _write(programs / "hl-smi.json", json.dumps(machine.hl_smi, indent=1))
    return programs


def _write(path: Path, text: str) -> None:
    # thousands of small files: pathlib's own open costs more than the writing
    with open(path, "w", encoding="utf-8") as out:  # noqa: PTH123
        out.write(text)
