"""The comparison of an installed engine with its constraints file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gaudi_launch.core.base import paths
from gaudi_launch.core.doctor.findings import Deviation, Pins
from gaudi_launch.core.engines.detect import Installed, detect
from gaudi_launch.core.engines.pins import compare_pins, pins_file, pins_in
from tests.support.drifted_engine import drifted_engine

FILE = paths.profiles_dir() / "engines" / "constraints" / "vllm-gaudi-0.26.0.txt"


def pinned(name: str) -> str:
    """Return the only version that the file has of a package."""
    (version,) = pins_in(FILE.read_text(encoding="utf-8"))[name]
    return version


def compared(program: Path) -> Pins | None:
    found = detect(str(program))
    assert found is not None
    return compare_pins(found)


def test_only_packages_with_another_version_deviate(tmp_path: Path) -> None:
    program = drifted_engine(
        tmp_path, {"fastapi": "99.1", "aiohttp": pinned("aiohttp") + "+local", "unlisted": "1.0"}
    )
    deviation = Deviation("fastapi", "99.1", pinned("fastapi"), ("fastapi",))
    assert compared(program) == Pins(str(FILE), (deviation,))


def test_an_engine_with_the_files_versions_does_not_deviate(tmp_path: Path) -> None:
    program = drifted_engine(tmp_path, {"fastapi": pinned("fastapi")})
    assert compared(program) == Pins(str(FILE), ())


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1"])
def test_the_forks_have_files(engine: str) -> None:
    found = pins_file(Installed("python3", engine))
    assert found is not None and Path(found).stem == engine.replace("@", "-")


def test_an_engine_without_a_profile_has_no_file() -> None:
    assert pins_file(Installed("python3", "cpu", {}, {"plugin": ""})) is None


def test_every_line_of_the_shipped_files_is_read() -> None:
    for path in FILE.parent.glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        lines = {
            re.split(r"==", line)[0]
            for line in text.splitlines()
            if line and not line.startswith("#")
        }
        assert set(pins_in(text)) == lines


def test_an_interpreter_that_does_not_answer_is_not_compared(tmp_path: Path) -> None:
    assert (
        compare_pins(Installed(str(tmp_path / "absent"), "vllm-gaudi", {}, {"plugin": "0.26.0"}))
        is None
    )
    assert compare_pins(Installed("/bin/true", "vllm-gaudi", {}, {"plugin": "0.26.0"})) is None
