"""Simulated machines: their names and variants, and what is written as a folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gaudi_launch.errors import ExitCode
from gaudi_launch.host.hl_smi import HlSmiOutput
from gaudi_launch.host.machine import load
from gaudi_launch.host.simulated import Machine, build, server_of, write_machine
from tests.support.refusals import failing

BOXES = "hls2, gaudi2e-8, gaudi2e-4, gaudi3-oam, gaudi3-pcie"
KNOWN_VARIANTS = (
    "busy=MODULES, failed=MODULES, no-driver, no-hl-smi, no-sysfs, no-smt, bad-tuning, container, "
    "amd, hot=MODULES, pending-rows=MODULES, capped=MODULES, link-down=MODULES, lost=MODULES, "
    "old-fit"
)


@pytest.mark.parametrize("name", ["", "hls9"])
def test_a_machine_that_cannot_be_simulated(name: str) -> None:
    with failing("host.unknown_machine", ExitCode.USAGE) as caught:
        load(f"simulated:{name}")
    assert caught.value.text.values == {"found": name, "known": BOXES}


@pytest.mark.parametrize("variant", ["busy", "no-driver=1", "rust"])
def test_a_variant_that_is_not_known(variant: str) -> None:
    with failing("host.unknown_variant", ExitCode.USAGE) as caught:
        load(f"simulated:hls2+{variant}")
    assert caught.value.text.values == {"found": variant, "known": KNOWN_VARIANTS}


@pytest.mark.parametrize("modules", ["8", "", "a", "1,8", "-1"])
def test_a_variant_of_modules_that_the_machine_lacks(modules: str) -> None:
    with failing("host.variant_modules", ExitCode.USAGE) as caught:
        load(f"simulated:hls2+busy={modules}")
    assert caught.value.text.values == {
        "found": f"busy={modules}",
        "machine": "hls2",
        "known": "0,1,2,3,4,5,6,7",
        "word": "busy",
    }


@pytest.mark.parametrize(
    ("product", "server"),
    [
        ("gaudi2", "simulated:hls2"),
        ("gaudi2e", "simulated:gaudi2e-8"),
        ("gaudi3", "simulated:gaudi3-oam"),
        ("gaudi3-pcie", "simulated:gaudi3-pcie"),
        ("gaudi1", None),
    ],
)
def test_the_full_server_of_a_product(product: str, server: str | None) -> None:
    assert server_of(product) == server


def test_what_a_machine_is_made_of() -> None:
    names = ("gaudi2e-4", "gaudi2e-4+no-hl-smi", "gaudi2e-4+no-smt")
    machines = [build(name) for name in names]
    online = [machine.files["sys/devices/system/cpu/online"] for machine in machines]
    assert online == ["0-127\n", "0-127\n", "0-63\n"]
    assert [machine.hl_smi is None for machine in machines] == [False, True, False]
    assert [machine.name for machine in machines] == [*names]
    assert load("simulated:gaudi2e-4+busy=0,2").free_modules == (1, 3)


def test_hl_smi_of_a_machine_in_memory() -> None:
    machine = build("gaudi2e-4")
    version = "HL-SMI Version: hl-1.22.1-fw-61.4.2.1\n"
    assert machine.ask(["-v"]) == HlSmiOutput(version)
    assert machine.ask(("-Q", "odd")) == HlSmiOutput(
        "Invalid arguments\n", "'hl-smi -Q odd' ended with exit code 1: Invalid arguments"
    )


def test_a_machine_is_written_with_its_changes(tmp_path: Path) -> None:
    data = {"cards": [], "version": "1"}
    machine = Machine("m", {"etc/a": "1\n", "etc/b": "2\n"}, {"proc/1/fd/0": "/dev/null"}, data)
    programs = write_machine(machine, tmp_path, {"etc/b": None, "new/c": "3\n"})
    texts = {
        path.relative_to(tmp_path).as_posix(): path.read_text()
        for path in sorted(tmp_path.rglob("*"))
        if path.is_file() and path.name != "hl-smi"
    }
    assert programs == tmp_path / "bin"
    assert (texts.pop("proc/1/fd/0", ""), json.loads(texts.pop("bin/hl-smi.json"))) == ("", data)
    assert texts == {"etc/a": "1\n", "new/c": "3\n"}
    assert (tmp_path / "proc/1/fd/0").readlink() == Path("/dev/null")
    folders = ("run/lock", "tmp", "dev/shm")
    assert [(tmp_path / folder).is_dir() for folder in folders] == [True, True, True]
    mode = (programs / "hl-smi").stat().st_mode
    done = subprocess.run([programs / "hl-smi", "-L"], capture_output=True, text=True, check=False)
    assert (mode & 0o777, done.returncode) == (0o755, 1)
    assert done.stdout.startswith("habanalabs driver is not loaded")
    without = write_machine(Machine("m", {"a": ""}, {}, None), tmp_path / "2")
    assert [*without.iterdir()] == []
