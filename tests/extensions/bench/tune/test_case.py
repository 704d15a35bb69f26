"""Tuning: rounds, time, noise, resuming, and a search with a stand-in for the engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.launch import route, saved_plan
from gaudi_launch.core.launch.report import Silent
from gaudi_launch.core.launch.saved_plan import SavedTraffic
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.predict import learned
from gaudi_launch.core.predict.balance import balanced
from gaudi_launch.core.services.state.registry import services
from gaudi_launch.extensions.bench.replay import Going
from gaudi_launch.extensions.bench.run_file import BenchRun
from gaudi_launch.extensions.bench.tune import case as tune
from gaudi_launch.extensions.bench.tune.case import TuneTrial
from gaudi_launch.extensions.bench.tune.state import TuneCandidate, TuneFigure, TuneStart, TuneState
from tests.support.processes import timed_python
from tests.support.refusals import refused
from tests.support.serve import machine, write_model
from tests.support.waiting import GENEROUS

__all__ = ["machine", "timed_python"]

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
        TuneCandidate(str(n), LaunchOptions(model="m", max_num_seqs=n + 1), 1, "")
        for n in range(count)
    )
    return TuneState(folder, "throughput", SavedTraffic("256", "64", concurrency="8"), 16, made)


def test_noise_is_the_scatter_of_repeats(tmp_path: Path) -> None:
    bench = Bench([10.0, 11.0], scatter=0.2)
    done, _ = tune.search(state(tmp_path, 2), bench.measure, 1e6, bench.clock)
    best, _, noise = tune.decide(done)
    assert (best.candidate, round(noise, 3)) == (0, 0.2)


def test_candidates_that_fail_leave_the_search(tmp_path: Path) -> None:
    bench = Bench([10.0, 0.0, 30.0, 0.0, 0.0])
    done, _ = tune.search(state(tmp_path), bench.measure, 1e6, bench.clock)
    assert tune.decide(done)[0].candidate == 2
    assert [start.why for start in done.starts[:2]] == ["", "it died"]


def test_nothing_that_starts_is_an_error_with_the_reason(tmp_path: Path) -> None:
    bench = Bench([0.0, 0.0])
    done, _ = tune.search(state(tmp_path, 2), bench.measure, 1e6, bench.clock)
    with pytest.raises(LaunchError) as error:
        tune.decide(done)
    assert error.value.id == "tune.nothing" and "it died" in error.value.text.render()


def test_short_time_measures_other_candidates_rather_than_the_last_round(tmp_path: Path) -> None:
    bench = Bench(SPEEDS)
    done, in_time = tune.search(state(tmp_path), bench.measure, 35.0, bench.clock)
    assert not in_time
    assert bench.now <= 35.0
    assert [trial[0] for trial in bench.trials] == [0, 1, 2]
    assert tune.decide(done)[0].candidate == 1


def test_saved_plans_are_compared_under_the_load_of_the_first(
    tmp_path: Path, own_folders: Path
) -> None:
    options = LaunchOptions(model="Qwen/Qwen3-8B", machine="simulated:hls2", cards=1)
    plan, _ = route.plan(options)
    files = [str(tmp_path / f"{name}.yaml") for name in "ab"]
    for file, clients in zip(files, "48", strict=True):
        one = replace(options, max_num_seqs=int(clients))
        load = SavedTraffic("128", "32", concurrency=clients)
        saved_plan.write(Path(file), one, plan, goal="cost", traffic=load)
    beside = LaunchOptions(engine="simulated", max_model_len=4096)
    state = tune.begin(beside, tune.TuneOptions(plans=tuple(files)))
    found = [
        (each.name, each.options.max_num_seqs, each.options.max_model_len)
        for each in state.candidates
    ]
    assert found == [("a.yaml", 4, 4096), ("b.yaml", 8, 4096)]
    assert (state.traffic, state.requests) == (SavedTraffic("128", "32", concurrency="4"), 16)
    state = tune.begin(beside, tune.TuneOptions(plans=tuple(files), rate="2"))
    assert state.traffic == SavedTraffic("128", "32", rate="2")
    there = replace(options, machine="simulated:gaudi3-oam")
    with refused("tune.machine", ExitCode.USAGE, found=there.machine):
        tune.begin(there, tune.TuneOptions(plans=tuple(files)))


class Watcher:
    """Presses Ctrl-C when the first request runs."""

    def __init__(self, *, interrupts: bool = False) -> None:
        self.interrupts = interrupts

    def say(self, line: str) -> None:
        pass

    def going(self, state: Going) -> None:
        if self.interrupts:
            self.interrupts = False
            signal.raise_signal(signal.SIGINT)


LAST = TuneTrial(0, 0, 8, 1, last=True)


@pytest.fixture
def search(
    tmp_path: Path, machine: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TuneState]:
    """Yield a search of a model on a machine with cards; at its end no engine runs."""
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(machine))
    monkeypatch.setenv("PATH", f"{machine / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("TIMED_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("TRIVIAL_GRAPHS", "1")
    options = LaunchOptions(model=str(write_model(tmp_path / "Small")), cards=1)
    folder = tmp_path / "my-question" / "2026"
    folder.mkdir(parents=True)
    load = SavedTraffic("16", "8", concurrency="4")
    yield TuneState(folder, "throughput", load, 8, (TuneCandidate("1", options, 1, ""),))
    assert [each.phase for each in services() if each.alive] == []


def tried(search: TuneState, left: float, watcher: Watcher, **options: Any) -> TuneStart:
    """Start and measure the search's candidate with other options."""
    [one] = search.candidates
    one = replace(one, options=replace(one.options, **options))
    tools = tune.TuneTools(Silent(), watcher, no_doctor=True)
    return tune.start_and_measure(replace(search, candidates=(one,)), LAST, left, tools)


def test_a_trial_that_is_not_ready_in_time_is_stopped_and_says_why(
    search: TuneState, timed_python: Path
) -> None:
    found = tried(search, 0.0, Watcher(), python=str(timed_python))
    values = {"name": "tune-question", "seconds": "0", "phase": "@"}
    why = message("services.not_yet", **values).render().partition("@")[0]
    assert (found.figures, found.start_seconds, found.why.startswith(why)) == ((), 0.0, True)


def test_ctrl_c_stops_a_trial(search: TuneState, timed_python: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        tried(search, GENEROUS, Watcher(interrupts=True), python=str(timed_python))


def test_simulated_cards_teach_nothing(search: TuneState, timed_python: Path) -> None:
    found = tried(search, GENEROUS, Watcher(), python=str(timed_python))
    assert [figure.file for figure in found.figures] == ["1-last-0-1.json"]
    assert learned.read_learned() is not None
    learned.state_file().unlink()
    simulated = replace(search.candidates[0], options=LaunchOptions(engine="simulated"))
    tune._learn(search, simulated, found.figures)
    assert learned.read_learned() is None


@pytest.mark.parametrize(
    ("goal", "score"), [("throughput", 40.0), ("latency", 0.5), ("balanced", None)]
)
def test_a_run_has_a_score_by_the_goal(goal: str, score: float | None) -> None:
    summary = {
        "completed": 8,
        "failed": 0,
        "output_rate": 40.0,
        "ttft": {"mean": 0.5},
        "tpot": None,
        "latency": {"mean": 2.0},
    }
    run = BenchRun({}, {}, summary)
    if score is None:
        score = balanced(20.0, ttft=0.5, tpot=1e-9)
    found = tune.figure_of(run, "a.json", goal, 2)
    assert found == TuneFigure("a.json", 40.0, 0.5, 0.0, 2.0, score)
    nothing = replace(run, summary={"completed": 0, "failed": 0, "requests": 8})
    with refused("tune.requests_failed", ExitCode.ENGINE, failed=0, requests=8):
        tune.figure_of(nothing, "a.json", goal, 2)


@pytest.mark.parametrize(
    ("options", "given", "id", "values"),
    [
        ({}, {"goal": "x"}, "tune.goal", {"found": "x", "known": ", ".join(tune.GOALS)}),
        ({}, {}, "tune.plans", {"found": "m"}),
        ({}, {"plans": ("a/m",)}, "tune.plans", {"found": "a/m"}),
        ({}, {"rate": "1", "concurrency": "1"}, "capacity.one_demand", {}),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    options: dict[str, str], given: dict[str, Any], id: str, values: dict[str, str]
) -> None:
    with refused(id, ExitCode.USAGE, **values):
        tune.begin(LaunchOptions(model="m", **options), tune.TuneOptions(**given))  # type: ignore[arg-type]


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
        self.launch = [str(model), "--python", str(python), "-n", "1"]

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
    files = [str(tmp_path / f"{batch}.yaml") for batch in (1, 64)]
    for batch, file in zip(("1", "64"), files, strict=True):
        assert user.json("plan", *user.launch, "-b", batch, "--save", file, "--json")
    best = tmp_path / "best.yaml"
    load = ("--concurrency", "4", "-i", "16", "-o", "8", "--requests", "8", "--no-doctor")
    words = ("--for", "throughput", "--minutes", "20", "--save", str(best), "--json")
    found = user.json("tune", *files, *load, *words)
    assert found["complete"] and not found["best"]["is_given"]
    assert found["best"]["gain"] > 1.5
    assert user.alive() == []
    rows = user.json("bench", "compare", *found["compare"], "--json")["rows"]
    assert {row["name"]: row["verdict"] for row in rows}["output_rate"] == "better"
    for start in found["starts"]:
        assert start["runs"] and all(Path(run["file"]).is_file() for run in start["runs"])
    planned = user.json("plan", "--plan", str(best), "--json")
    assert "--max-num-seqs" in planned["argv"]
