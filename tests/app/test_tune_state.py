"""The state of tune in a folder: its name, its content, what cannot be read or written."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.app import tune_state
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.saved_plan import SavedTraffic
from gaudi_launch.app.tune_candidates import TuneCandidate
from gaudi_launch.app.tune_state import TuneFigure, TuneStart, TuneState
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.paths import state_dir
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

LOAD = SavedTraffic("256", "64", concurrency="8")
OPTIONS = LaunchOptions(model="org/Small.Model", cards="2", extra=("--seed", "1"))


def figure(score: float) -> TuneFigure:
    return TuneFigure("1.json", tokens=score, ttft=0.1, tpot=0.01, latency=1.0, score=score)


def start(candidate: int, number: int = 0, *scores: float, last: bool = False) -> TuneStart:
    return TuneStart(candidate, number, last, 1.0, 2.0, 16, tuple(figure(s) for s in scores))


def state(folder: Path, *starts: TuneStart) -> TuneState:
    candidate = TuneCandidate("given", OPTIONS, 2, "sha256:1")
    return TuneState(folder, "latency", LOAD, 16, (candidate,), starts)


def test_a_state_is_written_as_a_document_and_read_as_it_was(tmp_path: Path) -> None:
    begun = state(tmp_path).with_start(start(0, 1, 3.0, last=True))
    written = replace(begun, done=True)
    assert tune_state.write(written) is written
    assert [path.name for path in tmp_path.iterdir()] == ["tune.json"]
    assert json.loads((tmp_path / "tune.json").read_text()) == {
        "schema": 1,
        "goal": "latency",
        "traffic": {"input": "256", "output": "64", "concurrency": "8"},
        "requests": 16,
        "done": True,
        "candidates": [
            {
                "name": "given",
                "options": {"model": "org/Small.Model", "cards": "2", "extra": ["--seed", "1"]},
                "cards": 2,
                "hash": "sha256:1",
            }
        ],
        "starts": [
            {
                "candidate": 0,
                "round": 1,
                "last": True,
                "start_seconds": 1.0,
                "seconds": 2.0,
                "requests": 16,
                "figures": [
                    {
                        "file": "1.json",
                        "tokens": 3.0,
                        "ttft": 0.1,
                        "tpot": 0.01,
                        "latency": 1.0,
                        "score": 3.0,
                    }
                ],
                "why": "",
            }
        ],
    }
    assert tune_state.read(tmp_path / "tune.json") == written


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"goal": 1, "traffic": {"what": 1}, "requests": 1}']
)
def test_a_damaged_state_is_an_error_with_its_path(content: str, tmp_path: Path) -> None:
    path = tmp_path / "tune.json"
    path.write_text(content)
    with pytest.raises(LaunchError) as raised:
        tune_state.read(path)
    error = raised.value
    assert (error.id, error.exit_code) == ("tune.bad_state", ExitCode.FAILED)
    assert error.text.values["path"] == str(path) and error.text.values["why"]


def test_a_state_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    why = os.strerror(2)
    with refused("tune.no_folder", ExitCode.FAILED, path=str(gone / "tune.json"), why=why):
        tune_state.write(state(gone))


def test_a_search_is_named_by_its_question() -> None:
    name = tune_state.key_of(OPTIONS, LOAD, "latency")
    assert name.startswith("Small-Model-") and len(name) == len("Small-Model-") + 8
    assert tune_state.key_of(OPTIONS, LOAD, "latency") == name
    others = {
        tune_state.key_of(replace(OPTIONS, cards="4"), LOAD, "latency"),
        tune_state.key_of(OPTIONS, replace(LOAD, rate="1"), "latency"),
        tune_state.key_of(OPTIONS, LOAD, "balanced"),
    }
    assert len(others) == 3 and name not in others
    assert tune_state.key_of(LaunchOptions(model="/"), LOAD, "x").startswith("model-")
    long = tune_state.key_of(LaunchOptions(model="m" * 60), LOAD, "x")
    assert len(long) == 40 + 1 + 8


def test_each_search_has_a_folder_of_its_own_for_this_user(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "strftime", lambda form: "2026-01-02-03-04-05")
    found = [tune_state.new_folder("m-1") for _ in range(3)]
    base = state_dir() / "tune" / "m-1"
    stamp = "2026-01-02-03-04-05"
    assert found == [base / stamp, base / f"{stamp}-2", base / f"{stamp}-3"]
    assert found[0].stat().st_mode & 0o777 == 0o700
    (state_dir() / "tune" / "file").write_text("")
    path = state_dir() / "tune" / "file" / stamp
    with refused("tune.no_folder", ExitCode.FAILED, path=str(path), why=os.strerror(20)):
        tune_state.new_folder("file")


def test_the_newest_search_is_continued(own_folders: Path) -> None:
    assert tune_state.newest("m-1") is None
    for number, name in enumerate(("b", "a")):
        folder = state_dir() / "tune" / "m-1" / name
        folder.mkdir(parents=True)
        tune_state.write(replace(state(folder), requests=number))
        os.utime(folder / "tune.json", (100 + number, 100 + number))
    found = tune_state.newest("m-1")
    assert found is not None and (found.folder.name, found.requests) == ("a", 1)


def test_the_score_of_a_start_is_the_middle_one() -> None:
    assert start(0).score == 0.0
    assert start(0, 0, 5.0, 1.0, 3.0).score == 3.0
    assert start(0, 0, 1.0, 2.0).score == 2.0


def test_a_start_is_found_by_candidate_round_and_kind(tmp_path: Path) -> None:
    starts = (start(0, 0, 1.0), start(1, 0), start(0, 1, 2.0), start(0, 1, 3.0, last=True))
    found = state(tmp_path, *starts)
    assert found.start_of(0, 1, last=False) == starts[2]
    assert found.start_of(0, 1, last=True) == starts[3]
    assert found.start_of(1, 1, last=False) is None
    # one that failed says nothing
    assert (found.best_start(0), found.best_start(1)) == (starts[3], None)
