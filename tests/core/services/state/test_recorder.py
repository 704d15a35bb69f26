"""The state file of a service: each event as it is written."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets import warmup_time
from gaudi_launch.core.buckets.warmup_time import Measured
from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.services.log.follow import LaunchPhase, LaunchProgress
from gaudi_launch.core.services.probe import Readiness
from gaudi_launch.core.services.process.supervise import EngineOutcome
from gaudi_launch.core.services.state import identity, store
from gaudi_launch.core.services.state.job import ServiceJob
from gaudi_launch.core.services.state.recorder import Recorder, remember

JOB = ServiceJob(
    "chat", "m", "/m", "e@1", "http://127.0.0.1:1", Command((), {}), modules=(2, 3), dtype="fp8"
)
PHASES = (LaunchPhase("warmup_prompt", 1.0, 2.0, 3), LaunchPhase("warmup_decode", 2.0, None, 4))
PROGRESS = LaunchProgress(
    "warmup_decode",
    done=4,
    total=9,
    bucket="batch 1",
    left_seconds=5.0,
    facts={"num_blocks": 7, "warmup_seconds": 12},
    phases=PHASES,
    warnings=("shape", "shape"),
)


@pytest.fixture
def folder(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(time, "time", lambda: 100.0)
    return store.make_dir("chat")


def state(folder: Path) -> dict[str, Any]:
    return dict(store.read(folder, "state.json") or {})


def made(folder: Path, inner: Mock) -> Recorder:
    return Recorder(inner, folder, JOB, Path("/log"))


SEEN = {
    "facts": {"num_blocks": 7, "warmup_seconds": 12},
    "phases": [codec.write(phase) for phase in PHASES],
    "run_time_compiles": 2,
}


def test_each_event_is_written_and_passed_on(folder: Path) -> None:
    inner = Mock()
    writer = made(folder, inner)
    me = identity.of(os.getpid())
    assert me is not None
    first = {
        "schema": 1,
        "name": "chat",
        "model": "/m",
        "engine": "e@1",
        "modules": [2, 3],
        "simulated": False,
        "url": "http://127.0.0.1:1",
        "log": "/log",
        "restart": "no",
        "restarts": 0,
        "began": 100.0,
        "phase": "start",
        "launcher": codec.write(me),
        "launcher_pid": os.getpid(),
    }
    assert state(folder) == first
    writer.started(os.getpid())
    first |= {"pid": os.getpid(), "engine_process": codec.write(me), "engine_began": 100.0}
    assert state(folder) == first
    writer.progress(PROGRESS)
    first |= {"phase": "warmup_decode", "done": 4, "total": 9, "bucket": "batch 1"}
    first |= {"left_seconds": 5.0, **SEEN}
    assert state(folder) == first
    writer.progress(replace(PROGRESS, phase="ready"))
    assert state(folder) == {**first, "phase": "answering"}
    answer = Readiness(True, "ready", model="served", path="/v1/chat", no_chat="no template")
    writer.ready(answer)
    first |= {"phase": "ready", "ready_at": 100.0, "served": "served", "answers": "/v1/chat"}
    first |= {"no_chat": "no template"}
    assert state(folder) == first
    writer.progress(PROGRESS)
    assert state(folder)["phase"] == "ready"
    writer.progress(replace(PROGRESS, phase="stopping"))
    assert state(folder)["phase"] == "stopping"
    writer.ending(15)
    names = [call[0] for call in inner.method_calls]
    assert names == ["started", "progress", "progress", "ready", "progress", "progress", "ending"]
    assert inner.ready.call_args.args == (answer,)
    assert inner.ending.call_args.args == (15,)


def test_the_end_is_written_with_its_cause(folder: Path) -> None:
    writer = made(folder, Mock())
    outcome = EngineOutcome("died", -9, PROGRESS, detail="last line")
    writer.ended(outcome, message("diagnose.killed"), permanent=True)
    found = state(folder)
    assert {name: found[name] for name in ("phase", "outcome", "status", "detail", "error_id")} == {
        "phase": "failed",
        "outcome": "died",
        "status": -9,
        "detail": "last line",
        "error_id": "diagnose.killed",
    }
    assert (found["permanent"], found["ended"], found["run_time_compiles"]) == (True, 100.0, 2)
    assert found["error"] == message("diagnose.killed").render()
    assert found["phases"][0]["end"] == 2.0 and found["phases"][1]["end"] > 2.0
    writer.again(2, 15.0)
    found = state(folder)
    assert "outcome" not in found and "ready_at" not in found
    assert (found["phase"], found["restarts"], found["left_seconds"]) == ("waiting", 2, 15.0)
    assert (found["done"], found["total"]) == (0, 0)
    writer.ended(EngineOutcome("stopped", 0, PROGRESS))
    found = state(folder)
    assert (found["phase"], found["outcome"], found["error"], found["error_id"]) == (
        "stopped",
        "stopped",
        "",
        "",
    )
    assert found["permanent"] is False


def remembered(folder: Path, job: ServiceJob, progress: LaunchProgress) -> list[Measured]:
    file = folder.parents[1] / warmup_time.FILE_NAME
    file.unlink(missing_ok=True)
    remember(job, progress)
    return warmup_time.read_measured(file)


def test_the_time_of_a_warm_up_is_kept_for_estimates(folder: Path) -> None:
    measured = Measured("e@1", "m", 2, "fp8", 7, 12.0, False)
    assert remembered(folder, JOB, PROGRESS) == [measured]
    shapes = replace(PROGRESS, facts={"warmup_seconds": 1.5, "warmup_shapes": 9})
    assert remembered(folder, JOB, shapes) == [replace(measured, graphs=9, seconds=1.5)]
    odd = replace(PROGRESS, facts={"warmup_seconds": 12, "warmup_shapes": 0})
    assert remembered(folder, JOB, odd) == [measured]
    cache = Mock(because="")
    cached = replace(JOB, cache=cache)
    assert remembered(folder, cached, PROGRESS) == [replace(measured, cached=True)]
    cache.because = "another driver"
    assert remembered(folder, cached, PROGRESS) == [measured]


def test_without_a_warm_up_nothing_is_kept(folder: Path) -> None:
    for progress in (
        replace(PROGRESS, facts={}),
        replace(PROGRESS, facts={"warmup_seconds": 0}),
        replace(PROGRESS, facts={"warmup_seconds": "long"}),
        replace(PROGRESS, phases=(LaunchPhase("load", 1.0, 2.0, 3),)),
    ):
        assert remembered(folder, JOB, progress) == []
    assert remembered(folder, replace(JOB, simulated=True), PROGRESS) == []
