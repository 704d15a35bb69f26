"""One run with the built-in client, and the facts that its record has."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.bench import replay, run, server, statistics
from gaudi_launch.bench.client import Client, ServerError
from gaudi_launch.bench.run import RequestManner, builtin, child_environment, problem, server_facts
from gaudi_launch.bench.run_file import BenchRun, BenchWorkload, Sample, WorkloadRequest
from gaudi_launch.errors import ExitCode
from gaudi_launch.messages import text
from gaudi_launch.services.endpoint import Target
from tests.support.refusals import failing

PLAN = {
    "engine": {"name": "vllm-gaudi", "version": "0.11", "python": "/p", "simulated": True},
    "model": {"path": "/models/m", "layers": 5},
    "dtype": "bfloat16",
    "modules": [0, 1],
    "settings": [
        {"name": "--max-num-batched-tokens", "value": 2048},
        {"name": "--seed", "value": 1},
        "junk",
    ],
}
SPEED = {
    "engine": {"name": "vllm-gaudi", "version": "0.11"},
    "model": {"path": "/models/m"},
    "dtype": "bfloat16",
    "modules": [0, 1],
    "settings": [{"name": "--max-num-batched-tokens", "value": "2048"}],
}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServerError("timeout", "why"), ExitCode.ENGINE),
        (ServerError("cut", "why"), ExitCode.ENGINE),
        (ServerError("protocol", "why"), ExitCode.ENGINE),
        (ServerError("status", "why", 500), ExitCode.ENGINE),
        (ServerError("status", "why", 404), ExitCode.FAILED),
        (ServerError("connect", "why"), ExitCode.FAILED),
    ],
)
def test_a_server_that_does_not_answer_is_the_engines_fault_or_ours(
    error: ServerError, code: ExitCode
) -> None:
    found = problem(error, "http://a:1")
    words = text(f"measure.fail_{error.kind}", why="why", status=error.status)
    assert (found.id, found.exit_code) == ("measure.no_server", code)
    assert found.text.values == {"url": "http://a:1", "words": words}


def test_a_record_has_the_facts_that_speed_depends_on() -> None:
    assert server_facts(Target("http://a:1", "mine", None, PLAN), "m") == {
        "url": "http://a:1",
        "service": "mine",
        "model": "m",
        "engine": "vllm-gaudi@0.11",
        "modules": [0, 1],
        "simulated": True,
        "plan": SPEED,
    }
    assert server_facts(Target("http://a:1"), None) == {
        "url": "http://a:1",
        "service": None,
        "model": None,
        "engine": None,
        "modules": None,
        "simulated": False,
        "plan": None,
    }


@pytest.mark.parametrize(
    ("plan", "engine", "settings"),
    [
        ({"engine": {"name": "a"}, "model": {}}, None, []),
        ({"engine": {"name": "a", "version": "1"}, "model": {}, "settings": 5}, "a@1", []),
    ],
)
def test_a_plan_with_parts_missing_is_a_record_too(
    plan: dict[str, Any], engine: str | None, settings: list[Any]
) -> None:
    found = server_facts(Target("http://a:1", plan=plan), "m")
    assert (found["engine"], found["plan"]["settings"]) == (engine, settings)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Answer for the server and the replay; return what each is called with."""
    asked: dict[str, list[Any]] = {"look": [], "pick_form": [], "measure_ruler": [], "replay": []}

    def answering(name: str, found: Any) -> Any:
        async def answer(*words: Any) -> Any:
            asked[name].append(words)
            if isinstance(found, Exception):
                raise found
            return found

        return answer

    served = server.ServerFacts("m", ("m",), 100, 80, vllm=True)
    monkeypatch.setattr(server, "look", answering("look", served))
    monkeypatch.setattr(server, "pick_form", answering("pick_form", "chat"))
    ruler = server.Ruler(1.23456, 4.56, True)
    monkeypatch.setattr(server, "measure_ruler", answering("measure_ruler", ruler))
    monkeypatch.setattr(replay, "replay", answering("replay", [SAMPLE]))
    monkeypatch.setattr(run, "_allow_connections", lambda: None)
    monkeypatch.setattr(run, "time", SimpleNamespace(time=lambda: 1000.0))
    return asked


CLIENT = Client("http://a:1")
SAMPLE = Sample(0.0, 0.0, 10, 2, first=1.0, last=1.5, gaps=(0.5,), input=10, output=2)
WORKLOAD = BenchWorkload(
    (WorkloadRequest(1.0, 3, 20), WorkloadRequest(2.0, 90, 20)), "own", None, "trace"
)
# five tokens around a text and one noun
FITTING = BenchWorkload((WorkloadRequest(0.0, 6, 20),), "own", None, "trace", left_out=1)


def ignore(_: object) -> None:
    """Take the progress of a run."""


def test_a_run_is_measured_in_the_form_that_the_server_answers(
    measured: dict[str, list[Any]],
) -> None:
    target = Target("http://a:1", "mine", "named", PLAN)
    made, interrupted = asyncio.run(
        builtin(CLIENT, target, WORKLOAD, ignore, RequestManner(texts=7))
    )
    assert (interrupted, made) == (
        False,
        BenchRun(
            {
                "tool": "builtin",
                **server_facts(target, "m"),
                "simulated": True,
                "form": "chat",
                "began": 1000.0,
                "interrupted": False,
                "ruler": {"each": 1.2346, "fixed": 4.6, "measured": True},
            },
            FITTING.to_json(),
            statistics.summary([SAMPLE]),
            (SAMPLE,),
        ),
    )
    served = server.ServerFacts("m", ("m",), 100, 80, vllm=True)
    assert measured["look"] == [(CLIENT, "named")]
    assert measured["pick_form"] == [(CLIENT, served)]
    assert measured["measure_ruler"] == [(CLIENT, served, "chat")]
    ((client, workload, way, going, stop),) = measured["replay"]
    ruler = server.Ruler(1.23456, 4.56, True)
    assert (client, workload, going, stop.is_set()) == (CLIENT, FITTING, ignore, False)
    assert way == replay.Way(served, "chat", ruler, ignore_eos=True, texts=7)


def test_the_users_form_model_and_end_are_those_of_the_requests(
    measured: dict[str, list[Any]],
) -> None:
    manner = RequestManner("generate", "mine", ignore_eos=False)
    made, _ = asyncio.run(builtin(CLIENT, Target("http://a:1"), WORKLOAD, ignore, manner))
    assert (measured["look"], measured["pick_form"]) == ([(CLIENT, "mine")], [])
    way = measured["replay"][0][2]
    assert (way.form, way.ignore_eos, way.texts) == ("generate", False, 0)
    assert (made.facts["form"], made.facts["simulated"]) == ("generate", False)


def test_a_server_without_an_answer_is_not_measured(
    measured: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(*_: Any) -> server.ServerFacts:
        raise ServerError("cut", "closed")

    monkeypatch.setattr(server, "look", look)
    with failing("measure.no_server", ExitCode.ENGINE):
        asyncio.run(builtin(CLIENT, Target("http://a:1"), WORKLOAD, ignore, RequestManner()))
    assert measured["replay"] == []


def test_the_first_control_c_stops_the_run_and_the_second_is_as_usual(
    measured: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers: list[Any] = []

    async def stopped(*words: Any) -> list[Sample]:
        signal.raise_signal(signal.SIGINT)
        await asyncio.wait_for(words[-1].wait(), 10)
        handlers.append(signal.getsignal(signal.SIGINT))
        return [SAMPLE]

    monkeypatch.setattr(replay, "replay", stopped)
    before = signal.getsignal(signal.SIGINT)
    made, interrupted = asyncio.run(
        builtin(CLIENT, Target("http://a:1"), WORKLOAD, ignore, RequestManner())
    )
    assert (interrupted, made.facts["interrupted"], made.samples) == (True, True, (SAMPLE,))
    assert signal.getsignal(signal.SIGINT) is before
    # asyncio.run has one of its own since Python 3.11
    assert handlers[0] is before or "Runner" in str(handlers[0])


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (1024, 4096, [(4096, 4096)]),
        (1024, 1 << 20, [(1 << 16, 1 << 20)]),
        (1024, resource.RLIM_INFINITY, [(1 << 16, resource.RLIM_INFINITY)]),
        (4096, 4096, []),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, []),
    ],
)
def test_a_run_may_have_as_many_connections_as_the_system_allows(
    soft: int, hard: int, expected: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[tuple[int, int]] = []

    def change(what: int, limits: tuple[int, int]) -> None:
        assert what == resource.RLIMIT_NOFILE
        changed.append(limits)

    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", change)
    run._allow_connections()
    assert changed == expected


@pytest.mark.parametrize("error", [OSError("no"), ValueError("no")])
def test_a_limit_that_cannot_be_raised_ends_no_run(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    run._allow_connections()


def test_a_record_is_stored_under_the_servers_name_and_second(own_folders: Path) -> None:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(1000.0))
    first = run.default_file("127.0.0.1:8000/模型", 1000.0)
    assert first.name == f"127.0.0.1-8000-模型-{stamp}.json"
    assert first.parent.name == "bench" and first.is_relative_to(own_folders)
    first.parent.mkdir(parents=True)
    first.touch()
    second = run.default_file("127.0.0.1:8000/模型", 1000.0)
    assert second == first.with_name(f"127.0.0.1-8000-模型-{stamp}-2.json")
    second.touch()
    third = run.default_file("127.0.0.1:8000/模型", 1000.0)
    assert third == first.with_name(f"127.0.0.1-8000-模型-{stamp}-3.json")
    assert run.default_file("a" * 70, 1000.0).name == f"{'a' * 60}-{stamp}.json"


def test_another_tool_reaches_the_server_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "internal")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = child_environment("http://10.0.0.1:8000", "s3cret")
    added = {"no_proxy": "internal,10.0.0.1", "NO_PROXY": "10.0.0.1", "OPENAI_API_KEY": "s3cret"}
    assert found == {**os.environ, **added}
    assert "OPENAI_API_KEY" not in child_environment("http://10.0.0.1:8000", None)
