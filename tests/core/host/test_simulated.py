"""Simulated machines: their names and variants, and what is written as a folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.host.machine import load
from gaudi_launch.core.host.simulated import Machine, write_machine
from tests.support.refusals import failing

KNOWN_VARIANTS = (
    "busy=MODULES, failed=MODULES, no-driver, no-hl-smi, no-sysfs, no-smt, bad-tuning, container, "
    "amd, hot=MODULES, pending-rows=MODULES, capped=MODULES, link-down=MODULES, lost=MODULES, "
    "old-fit"
)


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
