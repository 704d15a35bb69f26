"""The records of tune, and the folder of a search."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.launch.saved_plan import SavedTraffic
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.extensions.bench.tune import state as tune_state
from tests.support.refusals import failing

pytestmark = pytest.mark.usefixtures("plain_english")

LOAD = SavedTraffic("256", "64", concurrency="8")
OPTIONS = LaunchOptions(model="org/Small.Model", cards=2, extra=("--seed", "1"))


def test_each_search_has_a_folder_of_its_own_below_its_question(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "strftime", lambda form: "2026-01-02-03-04-05")
    found = [tune_state.new_folder(OPTIONS, LOAD, "latency") for _ in range(3)]
    base, stamp = found[0].parent, "2026-01-02-03-04-05"
    assert found == [base / stamp, base / f"{stamp}-2", base / f"{stamp}-3"]
    assert found[0].stat().st_mode & 0o777 == 0o700
    assert re.fullmatch("Small-Model-[0-9a-f]{8}", base.name)
    assert base.parent == state_dir() / "tune"
    others = (
        tune_state.new_folder(replace(OPTIONS, cards=4), LOAD, "latency"),
        tune_state.new_folder(OPTIONS, replace(LOAD, rate="1"), "latency"),
        tune_state.new_folder(OPTIONS, LOAD, "balanced"),
    )
    assert len({base, *(other.parent for other in others)}) == 4
    nameless = tune_state.new_folder(LaunchOptions(model="/"), LOAD, "x")
    assert nameless.parent.name.startswith("model-")
    long = tune_state.new_folder(LaunchOptions(model="m" * 60), LOAD, "x")
    assert len(long.parent.name) == 40 + 1 + 8


def test_a_folder_that_cannot_be_made_is_an_error(own_folders: Path) -> None:
    (state_dir() / "tune").parent.mkdir(parents=True, exist_ok=True)
    (state_dir() / "tune").write_text("")
    with failing("tune.no_folder", ExitCode.FAILED) as raised:
        tune_state.new_folder(OPTIONS, LOAD, "latency")
    assert raised.value.text.values["why"] == os.strerror(20)
