"""The needs of a model: places, conversion, measurements, code, disk space; nothing is changed."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.launch import model_needs
from gaudi_launch.core.launch.model_needs import check_disk
from gaudi_launch.core.launch.setup_steps import Room, SetupFacts
from gaudi_launch.core.models.fp8.quant_config import QuantFile
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")
GIB = 1 << 30
Usage = namedtuple("Usage", "total used free")


def test_measurements_that_are_missing_are_counted() -> None:
    found = QuantFile("/q.json", "flag", missing=("b", "a"))
    error = model_needs.incomplete(found, "org/m", 4)
    with refused(
        "quant.measurements_missing", ExitCode.MODEL,
        path="/q.json", model="org/m", cards=4, count=2, first="b",
    ):  # fmt: skip
        raise error


# --- checks before a launch ----------------------------------------------------------------------


def test_what_is_written_to_one_disk_is_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = SetupFacts(
        "org/m",
        repo="org/m",
        target=tmp_path / "a" / "b",
        weight_bytes=10 * GIB,
        converts=True,
        converted_target=tmp_path / "c",
    )
    free = {"bytes": 22 * GIB}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free["bytes"]))
    # the weights twice, and a GiB for other files of each
    assert model_needs._rooms(facts, here=True) == (Room(tmp_path, 22 * GIB, 22 * GIB),)
    assert model_needs._rooms(facts, here=False) == (Room(facts.target, 22 * GIB, None),)
    assert model_needs._rooms(SetupFacts("m"), here=False) == ()
    check_disk(facts)
    free["bytes"] -= 1
    with refused(
        "prepare.disk", ExitCode.MACHINE, model="org/m", path=str(tmp_path), free=23.6, needed=23.6
    ):
        check_disk(facts)
