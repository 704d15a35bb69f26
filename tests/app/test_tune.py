"""Tuning: rounds, time, noise, resuming, and a search with a stand-in for the engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app import tune, tune_state
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.saved_plan import SavedTraffic
from gaudi_launch.app.tune import TuneTrial
from gaudi_launch.app.tune_candidates import TuneCandidate, candidates, without_searched
from gaudi_launch.app.tune_state import TuneFigure, TuneStart, TuneState
from gaudi_launch.errors import LaunchError
from tests.support.capacity import few_requests
from tests.support.processes import timed_python
from tests.support.serve import machine, write_model
from tests.support.waiting import GENEROUS, until

__all__ = ["few_requests", "machine", "timed_python"]

SPEEDS = [10.0, 40.0, 20.0, 30.0, 50.0]


class Bench:
    """A clock, and measurements that take time on it; some candidates fail."""

    def __init__(
        self, speeds: Sequence[float], *, seconds: float = 10.0, scatter: float = 0.0
    ) -> None:
        self.speeds = speeds
        self.seconds = seconds
        self.scatter = scatter
        self.now = 0.0
        self.trials: list[tuple[int, int, int, int, bool]] = []

    def clock(self) -> float:
        return self.now

    def measure(self, state: TuneState, trial: TuneTrial, left: float) -> TuneStart:
        self.trials.append(
            (trial.candidate, trial.round, trial.requests, trial.repeats, trial.last)
        )
        self.now += self.seconds
        speed = self.speeds[trial.candidate]
        figures = tuple(
            figure(f"{trial.candidate}-{repeat}", speed * (1 + self.scatter * (repeat - 1)))
            for repeat in range(trial.repeats)
        )
        requests = trial.requests * trial.repeats
        start = TuneStart(
            trial.candidate, trial.round, trial.last, self.seconds, self.seconds, requests
        )
        return replace(start, figures=figures) if speed else replace(start, why="it died")


def figure(file: str, speed: float) -> TuneFigure:
    return TuneFigure(f"{file}.json", tokens=speed, ttft=0.1, tpot=0.01, latency=1.0, score=speed)


def state(folder: Path, count: int = len(SPEEDS)) -> TuneState:
    made = tuple(
        TuneCandidate(str(n), LaunchOptions(model="m", max_num_seqs=str(n + 1)), 1, "")
        for n in range(count)
    )
    return TuneState(folder, "throughput", SavedTraffic("256", "64", concurrency="8"), 16, made)


def test_the_better_half_is_measured_with_twice_the_requests(tmp_path: Path) -> None:
    bench = Bench(SPEEDS)
    done = tune.search(state(tmp_path), bench.measure, 1e6, bench.clock)
    first = [(number, 0, 16, 1, False) for number in range(5)]
    second = [(number, 1, 32, 1, False) for number in (4, 1, 3)]
    assert bench.trials == [*first, *second, (0, 2, 64, 3, True), (4, 2, 64, 3, True)]
    best, given, noise = tune.decide(done.state)
    assert (best.candidate, given and given.candidate, noise) == (4, 0, 0.03)
    assert done.in_time and done.state.done


@pytest.mark.parametrize(("other", "winner"), [(10.25, 0), (10.35, 1), (9.0, 0)])
def test_the_given_plan_stays_unless_another_is_better_beyond_the_noise(
    other: float, winner: int, tmp_path: Path
) -> None:
    bench = Bench([10.0, other])
    done = tune.search(state(tmp_path, 2), bench.measure, 1e6, bench.clock)
    assert tune.decide(done.state)[0].candidate == winner


def test_noise_is_the_scatter_of_repeats(tmp_path: Path) -> None:
    bench = Bench([10.0, 11.0], scatter=0.2)
    done = tune.search(state(tmp_path, 2), bench.measure, 1e6, bench.clock)
    best, _, noise = tune.decide(done.state)
    assert (best.candidate, round(noise, 3)) == (0, 0.2)


def test_candidates_that_fail_leave_the_search(tmp_path: Path) -> None:
    bench = Bench([10.0, 0.0, 30.0, 0.0, 0.0])
    done = tune.search(state(tmp_path), bench.measure, 1e6, bench.clock)
    assert tune.decide(done.state)[0].candidate == 2
    assert [start.why for start in done.state.starts[:2]] == ["", "it died"]


def test_nothing_that_starts_is_an_error_with_the_reason(tmp_path: Path) -> None:
    bench = Bench([0.0, 0.0])
    done = tune.search(state(tmp_path, 2), bench.measure, 1e6, bench.clock)
    with pytest.raises(LaunchError) as error:
        tune.decide(done.state)
    assert error.value.id == "tune.nothing" and "it died" in error.value.text.render()


def test_short_time_measures_other_candidates_rather_than_the_last_round(tmp_path: Path) -> None:
    bench = Bench(SPEEDS)
    done = tune.search(state(tmp_path), bench.measure, 35.0, bench.clock)
    assert not done.in_time and not done.state.done
    assert bench.now <= 35.0
    assert [trial[0] for trial in bench.trials] == [0, 1, 2]
    assert tune.decide(done.state)[0].candidate == 1


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    first = Bench(SPEEDS)
    part = tune.search(state(tmp_path), first.measure, 55.0, first.clock)
    again = Bench(SPEEDS)
    done = tune.search(tune_state.read(tmp_path / "tune.json"), again.measure, 1e6, again.clock)
    once = Bench(SPEEDS)
    (tmp_path / "once").mkdir()
    complete = tune.search(state(tmp_path / "once"), once.measure, 1e6, once.clock)
    assert len(part.state.starts) == len(first.trials) > 0
    assert sorted([*first.trials, *again.trials]) == sorted(once.trials)
    assert tune.decide(done.state)[0].candidate == tune.decide(complete.state)[0].candidate
    finished = Bench(SPEEDS)
    assert (
        tune.search(done.state, finished.measure, 1e6, finished.clock).state.starts
        == done.state.starts
    )
    assert finished.trials == []


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    bench = Bench([10.0, 20.0])
    done = tune.search(state(tmp_path, 2), bench.measure, 1e6, bench.clock)
    assert tune_state.read(tmp_path / "tune.json") == done.state


@pytest.mark.usefixtures("few_requests")
def test_candidates_start_with_the_given_plan_and_differ() -> None:
    found = candidates(
        LaunchOptions(
            model="Qwen/Qwen3-8B", machine="simulated:hls2", extra=("--max-num-seqs", "1")
        ),
        clients=16,
        most=6,
    )
    assert [one.name for one in found[:3]] == ["given", "default", "-n 2"]
    assert len({one.hash for one in found}) == len(found) == 6
    assert found[0].options.extra == ("--max-num-seqs", "1") and found[1].options.extra == ()


def test_another_machine_is_refused_unless_its_cards_are_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    options = LaunchOptions(model="Qwen/Qwen3-8B", machine="simulated:hls2")
    with pytest.raises(LaunchError) as error:
        tune.begin(options, tune.TuneOptions(candidates="2"))
    assert error.value.id == "tune.machine"
    assert not tune.is_simulated(options)
    simulated = replace(options, engine="simulated")
    state = tune.begin(simulated, tune.TuneOptions(candidates="2"))
    assert state.candidates[0].options.machine == "simulated:hls2"
    assert tune.is_simulated(simulated)


@pytest.mark.usefixtures("few_requests")
def test_options_before_the_dashes_stay() -> None:
    options = LaunchOptions(
        model="Qwen/Qwen3-8B", machine="simulated:hls2", cards="2", max_num_seqs="8"
    )
    found = candidates(options, clients=16, most=6)
    assert {(one.options.cards, one.options.max_num_seqs) for one in found} == {("2", "8")}
    assert without_searched(replace(options, extra=("--max-num-seqs=4", "--seed", "1"))).extra == (
        "--seed",
        "1",
    )


class User:
    """Runs tune on a machine of cards with the stand-in engine."""

    def __init__(self, tmp_path: Path, machine: Path, python: Path) -> None:
        self.pids = tmp_path / "pids"
        self.pids.touch()
        self.state = tmp_path / "state"
        self.environment = {
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith(("VLLM_", "HABANA_", "PT_HPU"))
            },
            "XDG_STATE_HOME": str(self.state),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "GAUDI_LAUNCH_ROOT": str(machine),
            "PATH": f"{machine / 'bin'}:{os.environ['PATH']}",
            "TIMED_PIDS": str(self.pids),
            "TRIVIAL_GRAPHS": "1",
        }
        model = write_model(tmp_path / "models" / "Small")
        load = ("--concurrency", "4", "-i", "16", "-o", "8", "--requests", "8", "--candidates", "2")
        self.words = ["tune", str(model), "--python", str(python), "-n", "1", "--no-doctor", *load]

    def start(self, *words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "gaudi_launch", *words]
        return subprocess.Popen(
            argv, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def json(self, *words: str) -> dict[str, Any]:
        process = self.start(*words)
        out, err = process.communicate(timeout=GENEROUS)
        assert process.returncode == 0, out + err
        found: dict[str, Any] = json.loads(out)
        return found

    def alive(self) -> list[str]:
        return [pid for pid in self.pids.read_text().split() if Path(f"/proc/{pid}").exists()]


@pytest.fixture
def user(tmp_path: Path, machine: Path, timed_python: Path) -> User:
    return User(tmp_path, machine, timed_python)


def test_a_bad_plan_is_replaced_and_the_comparison_proves_it(user: User, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    words = ("--for", "throughput", "--minutes", "20", "--save", str(best), "--json")
    found = user.json(*user.words, *words, "--", "--max-num-seqs", "1")
    assert found["complete"] and not found["best"]["is_given"]
    assert found["best"]["gain"] > 1.5
    assert user.alive() == []
    rows = user.json("bench", "compare", *found["compare"], "--json")["rows"]
    assert {row["name"]: row["verdict"] for row in rows}["output_rate"] == "better"
    for start in found["starts"]:
        assert start["runs"] and all(Path(run["file"]).is_file() for run in start["runs"])
    planned = user.json("plan", "--plan", str(best), "--python", str(user.words[3]), "--json")
    assert "--max-num-seqs" in planned["argv"]
    # a finished search answers at once, with the same
    again = user.json(*user.words, *words, "--resume", "--", "--max-num-seqs", "1")
    assert (again["best"], again["starts"]) == (found["best"], found["starts"])


def test_ctrl_c_leaves_nothing_running_and_resume_continues(user: User) -> None:
    process = user.start(*user.words, "--minutes", "20", "--", "--max-num-seqs", "1")
    until(lambda: len(user.alive()) > 0, "an engine that runs")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=GENEROUS)
    assert process.returncode == 130, out + err
    assert user.alive() == []
    assert user.json("ps", "--json")["services"] == []
    found = user.json(
        *user.words, "--minutes", "20", "--resume", "--json", "--", "--max-num-seqs", "1"
    )
    assert found["complete"] and user.alive() == []


def test_a_search_that_never_was_cannot_be_resumed(user: User) -> None:
    process = user.start(*user.words, "--resume", "--json")
    out, _ = process.communicate(timeout=GENEROUS)
    assert (process.returncode, json.loads(out)["error"]["id"]) == (2, "tune.nothing_to_resume")
