"""One damaged file of a service costs that service, never another one or a command that lists
them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.registry import hold
from gaudi_launch.extensions.watch.exporter import export as exporter
from tests.support.cli import reading

pytestmark = pytest.mark.usefixtures("plain_english")

DEEP = "[" * 100_000 + "]" * 100_000
GOOD: dict[str, Any] = {
    "name": "b",
    "model": "/models/m",
    "engine": "vllm-fork@1.21",
    "modules": [0, 1],
    "url": "http://127.0.0.1:9",
    "log": "/none/engine.log",
    "restart": "no",
    "restarts": 0,
    "began": 1000.0,
    "phase": "failed",
    "outcome": "died",
    "status": 1,
    "error": "",
    "error_id": "",
    "phases": [{"name": "load", "begin": 1.0, "end": 2.0, "items": 3}],
    "facts": {"warmup_seconds": 4.0},
}
PLAN: dict[str, Any] = {
    "dtype": "bfloat16",
    "argv": ["python"],
    "env": {},
    "cpus": "0-3",
    "numa_nodes": [0],
    "memory": {"weights": 1.5},
    "cache": None,
    "buckets": {"graphs": 3},
    "estimate": {"warmup_seconds": {"low": 1.0, "high": 2.0}},
}
BAD = {
    "deep": '{"phase": ' + DEEP + "}",
    "huge": json.dumps({**GOOD, "name": "a"}).replace("1000.0", "1" + "0" * 400),
    "endless": json.dumps({**GOOD, "name": "a"}).replace("1000.0", "1e999"),
    "surrogate": json.dumps({**GOOD, "name": "a", "phase": "\ud800", "model": "\ud800"}),
    "terminal": json.dumps({**GOOD, "name": "a", "model": "/m/\x1b]0;x\x07\u202e"}),
    "phases": json.dumps({**GOOD, "name": "a", "phases": [{"name": 1}], "facts": [], "done": "x"}),
    "texts": json.dumps(
        {**GOOD, "name": "a", "began": "x", "ready_at": "y", "ended": "z", "restarts": "1"}
    ),
    "pid": json.dumps({**GOOD, "launcher": {"pid": 10**17, "ticks": 1, "boot": ""}, "pid": 10**17}),
    "list": "[]",
    "cut": '{"phase": "re',
    "empty": "",
}


def put(name: str, content: str, file: str = "state.json") -> None:
    (store.make_dir(name) / file).write_text(content, encoding="utf-8")


def listed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [service["name"] for service in reading(capsys, "ps", "-a")["services"]]


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_the_others_are_listed(content: str, capsys: pytest.CaptureFixture[str]) -> None:
    put("a", content)
    put("b", json.dumps(GOOD))
    assert "b" in listed(capsys)
    assert run(["ps", "-a"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b]" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_the_exporter_answers_for_the_others(content: str) -> None:
    put("a", content)
    put("b", json.dumps(GOOD))
    assert 'gaudi_launch_service_up{service="b"} 0.0' in exporter.page("simulated:hls2")


@pytest.mark.parametrize("command", ["status", "stop", "wait", "why", "restart", "logs"])
@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_command_on_it_ends_with_a_sentence(
    content: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put("a", content)
    put("b", json.dumps(GOOD))
    code = run([command, "a"])
    err = capsys.readouterr().err
    assert code in (0, 1, 2, 4)
    assert "bug in gaudi-launch" not in err
    assert not (state_dir() / "last-crash.txt").exists()


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_why_without_a_name_passes_it(content: str) -> None:
    put("a", content)
    put("b", json.dumps(GOOD))
    assert run(["why"]) in (0, 1)
    assert not (state_dir() / "last-crash.txt").exists()


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
@pytest.mark.parametrize("file", ["plan.json", "job.json"])
def test_a_damaged_plan_or_job(file: str, content: str) -> None:
    put("a", json.dumps(GOOD))
    put("a", content, file)
    for command in ("status", "why", "restart", "stop"):
        assert run([command, "a"]) in (0, 1, 2, 4)
    assert not (state_dir() / "last-crash.txt").exists()


@pytest.mark.parametrize("content", [BAD["deep"], BAD["cut"]], ids=["deep", "cut"])
def test_a_live_service_stays_visible(content: str, capsys: pytest.CaptureFixture[str]) -> None:
    with hold("a"):
        put("a", content)
        (service,) = reading(capsys, "ps")["services"]
        assert (service["name"], service["alive"]) == ("a", True)


def test_a_path_that_is_not_utf_8_is_kept(tmp_path: Path) -> None:
    folder = store.make_dir("a")
    assert store.write(folder, "job.json", {"model": "/m\udcff"})
    assert store.read(folder, "job.json") == {"schema": 1, "model": "/m\udcff"}


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**18), 2**63, "\ud800", "\x1b[2J"])
    | st.floats()
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.dictionaries(
        st.sampled_from([*GOOD, "done", "total", "ready_at", "launcher", "detail"]), ANY
    ),
    planned=st.dictionaries(st.sampled_from([*PLAN]), ANY),
)
@example(changes={}, planned={"memory": {"?": 1.0}})
def test_any_value_in_any_field(changes: dict[str, Any], planned: dict[str, Any]) -> None:
    put("a", json.dumps({**GOOD, **changes}))
    put("a", json.dumps({**PLAN, **planned}), "plan.json")
    put("b", json.dumps(GOOD))
    for words in (
        ["ps", "-a"],
        ["ps", "-a", "--json"],
        ["status", "a"],
        ["status", "a", "--json"],
        ["why", "a"],
    ):
        assert run(words) in (0, 1), words
    assert 'gaudi_launch_service_up{service="b"} 0.0' in exporter.page("simulated:hls2")
    assert run(["wait", "a"]) in (1, 4)
    assert not (state_dir() / "last-crash.txt").exists()
