"""The agent of a host, called in this process on real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.hosts import agent
from tests.support.waiting import until

# its first thread ends, another continues
THREAD = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture
def state(own_folders: Path) -> Path:
    """Return the folder of the member c/a."""
    folder = own_folders / "state" / "gaudi-launch" / "cluster" / "c" / "a"
    folder.mkdir(mode=0o700, parents=True)
    return folder


@pytest.fixture
def caller() -> Iterator[int]:
    """Yield a pipe to a launcher that reads."""
    reading, writing = os.pipe()
    yield writing
    os.close(reading)
    os.close(writing)


@pytest.fixture
def deserted() -> Iterator[int]:
    """Yield a pipe that no process reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def record(folder: Path, name: str, **values: object) -> None:
    (folder / f"{name}.json").write_text(json.dumps(values))


@contextmanager
def running(*argv: str, session: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process, which ends with the block; stop a shell's children with it."""
    process = subprocess.Popen(argv, start_new_session=session, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        if session and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.communicate()


def test_a_process_as_the_kernel_shows_it() -> None:
    with running(*SLEEP) as one, running("true") as zombie, running(*SLEEP[:2], THREAD) as partly:
        until(lambda: agent.stat(zombie.pid) is None)
        until(lambda: (agent.stat(partly.pid) or "R")[-1] == "Z")
        for process in (one, partly):
            found = agent.stat(process.pid)
            assert found is not None and found[:2] == (os.getpid(), process.pid)
    assert agent.stat(one.pid) is None


def test_only_the_process_that_was_started_counts(tmp_path: Path) -> None:
    pid = os.getpid()
    known = agent.stat(pid)
    assert known is not None
    record(tmp_path, "same", pid=pid, started=known[2])
    record(tmp_path, "another", pid=pid, started=known[2] - 1)
    record(tmp_path, "gone", pid=1 << 22, started=known[2])
    record(tmp_path, "partial", pid=pid)
    (tmp_path / "damaged.json").write_text("[")
    names = ("same", "another", "gone", "partial", "damaged", "none")
    assert {name: agent.kept(tmp_path, name) for name in names} == {
        **dict.fromkeys(names, None),
        "same": pid,
    }


def test_a_command_starts_with_its_files_and_variables(
    state: Path, caller: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "here")
    monkeypatch.setenv("A", "here")
    path = tmp_path / "files" / "x"
    script = f"cat {path}; echo $OURS $A $B; pwd; echo $$ >&2; cat; exit 3"
    log = state / "service.log"
    log.write_text("of an earlier run, which was longer than this one will ever be")
    found = agent.start(
        {
            "folder": "c/a",
            "name": "service",
            "argv": ["sh", "-c", script],
            "env": {"A": "env", "B": "env"},
            "secrets": {"B": "secret"},
            "files": {str(path): "text\n"},
            "settle": 5.0,
            "caller": caller,
        }
    )
    assert found == {"pid": found["pid"], "exit": 3}
    assert log.read_text() == f"text\nhere env secret\n/\n{found['pid']}\n"
    assert json.loads((state / "service.json").read_text())["pid"] == found["pid"]
    assert sorted(each.name for each in state.iterdir()) == ["service.json", "service.log"]


def test_a_record_is_replaced_and_never_half_written(state: Path, caller: int) -> None:
    """A guard that read half of one left, and its host kept an engine without a launcher."""
    place = state / "service.json"
    place.write_text("{}")
    one = {"folder": "c/a", "name": "service", "argv": ["true"], "caller": caller, "settle": 0.0}
    with place.open() as held:
        found = agent.start({**one, "env": {}, "files": {}})
        assert held.read() == "{}"
    assert json.loads(place.read_text())["pid"] == found["pid"]


@pytest.mark.parametrize(
    ("argv", "session", "ended"),
    [(SLEEP, True, True), (SLEEP, False, False), (("sleep", "60"), True, False)],
    ids=["guard", "not a session of its own", "another program"],
)
def test_only_a_guard_is_ended_as_one(
    tmp_path: Path, argv: tuple[str, ...], session: bool, ended: bool
) -> None:
    with running(*argv, session=session) as process:
        until(lambda: Path(f"/proc/{process.pid}/exe").resolve().stem in ("sleep", python()))
        record(tmp_path, "service", pid=7, started=1, guard=process.pid)
        for name in ("none", "service"):
            agent.end_guard(tmp_path, name)
        if ended:
            assert process.wait(60) == -signal.SIGKILL
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
    # a guard that ended, and records of another form
    agent.end_guard(tmp_path, "service")
    for values in ({"pid": 1}, {"guard": "x"}):
        record(tmp_path, "service", **values)
        agent.end_guard(tmp_path, "service")


def python() -> str:
    return Path(f"/proc/{os.getpid()}/exe").resolve().stem


def test_a_long_log_comes_in_parts(state: Path) -> None:
    (state / "service.log").write_bytes(b"x" * ((1 << 20) + 5))
    found = agent.status({"folder": "c/a", "names": [], "log": "service"})
    assert (len(found["log"]), found["offset"]) == (1 << 20, 1 << 20)


def test_what_is_stuck_in_the_kernel_stays_recorded(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = {os.getpid(): "ended", os.getppid(): "stuck"}
    monkeypatch.setattr(agent, "end", lambda pid, timeout: results[pid])
    for name, pid in (("service", os.getpid()), ("ray", os.getppid())):
        known = agent.stat(pid)
        assert known is not None
        record(state, name, pid=pid, started=known[2])
    (state / agent.LEASE).touch()
    asked = {"folder": "c/a", "names": ["service", "ray", "other"], "timeout": 2.0}
    ended = {"service": "ended", "ray": "stuck", "other": "none"}
    assert agent.stop(asked) == {"ended": ended}
    assert sorted(each.name for each in state.iterdir()) == [agent.LEASE, "ray.json"]
    results[os.getppid()] = "killed"
    assert agent.stop(asked) == {"ended": {**ended, "service": "none", "ray": "killed"}}
    assert [*state.iterdir()] == []
    # without a lease and a record
    assert agent.stop({**asked, "names": ["other"]}) == {"ended": {"other": "none"}}


@pytest.mark.parametrize(
    ("worker", "result"),
    [
        ("touch $0; exec sleep 60", "ended"),
        ("touch $0; exec setsid sleep 60", "ended"),
        ("trap 'sleep 0.3; exit' TERM; touch $0", "ended"),
        ("trap '' TERM; touch $0", "killed"),
    ],
)
def test_what_remains_gets_sigterm_and_then_sigkill(
    tmp_path: Path, worker: str, result: str
) -> None:
    """The first process ends immediately."""
    wait = "while true; do sleep 0.1; done"
    script = f"trap exit TERM; ({worker}; echo; {wait}) & {wait}"
    ready = tmp_path / "ready"
    with running("sh", "-c", script, str(ready)) as process:
        until(lambda: ready.exists() and len(agent.family(process.pid)) >= 3)
        mine = agent.family(process.pid)
        assert agent.end(process.pid, 2.0) == result
        assert [
            pid for pid, started in mine.items() if (agent.stat(pid) or (0,) * 3)[2] == started
        ] == []


def test_a_command_runs_to_its_end(caller: int, deserted: int) -> None:
    rows: list[tuple[list[str], float, int, int, str]] = [
        (["sh", "-c", "echo out; echo err >&2; cat; exit 3"], 20.0, caller, 3, "out\nerr\n"),
        # the last 4000 bytes
        (["sh", "-c", "printf '%5000d' 7"], 20.0, caller, 0, " " * 3999 + "7"),
        (["/no/rsync"], 1.0, caller, 127, "No such file or directory"),
        (["sleep", "60"], 0.05, caller, 124, "0.05 s"),
        (["sleep", "60"], 60.0, deserted, 124, "60 s"),
    ]
    for argv, seconds, pipe, code, output in rows:
        found = agent.run({"argv": argv, "seconds": seconds, "caller": pipe})
        assert found == {"code": code, "output": output}


@pytest.mark.parametrize(
    ("request_text", "answer"),
    [
        ('{"do": "add", "a": 1, "b": 2}', {"sum": 3}),
        ('{"do": "none"}', {"error": "KeyError: 'none'"}),
    ],
)
def test_a_request_has_one_marked_answer(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request_text: str,
    answer: object,
) -> None:
    monkeypatch.setitem(agent.DOES, "add", lambda request: {"sum": request["a"] + request["b"]})
    agent.main(request_text)
    assert capfd.readouterr().out == f"\n{agent.MARK}{json.dumps(answer)}\n"


def test_a_port_that_accepts_connections() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        asked = {"host": "127.0.0.1", "port": bound.getsockname()[1], "seconds": 0.5}
        began = time.monotonic()
        refused = {"open": False, "why": "[Errno 111] Connection refused"}
        assert agent.listening(asked) == refused
        assert 0.5 <= time.monotonic() - began < 5
        threading.Timer(0.5, bound.listen).start()
        assert agent.listening({**asked, "seconds": 60.0}) == {"open": True}


def node(address: str, hpu: float | None, alive: bool = True) -> dict[str, Any]:
    resources = {} if hpu is None else {"HPU": hpu}
    return {"NodeManagerAddress": address, "Alive": alive, "Resources": resources}


def test_the_nodes_of_ray_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [node("10.0.0.1", 8.0)]
    every = [*few, node("10.0.0.2", 8.0), node("10.0.0.3", None), node("10.0.0.2", 8.0, False)]
    views = [few, every]
    made: list[tuple[str, dict[str, Any]]] = []
    ray = types.SimpleNamespace(
        init=lambda **words: made.append((os.environ.get("RAY_ADDRESS", ""), words)),
        nodes=lambda: views.pop(0),
        shutdown=lambda: made.append(("shutdown", {})),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("RAY_ADDRESS", "ray://elsewhere")
    asked = {"address": "10.0.0.1:8850", "ip": "10.0.0.1", "wanted": 16, "seconds": 30.0}
    first, second = (
        {"address": address, "alive": True, "hpu": 8} for address in ("10.0.0.1", "10.0.0.2")
    )
    third = {"address": "10.0.0.3", "alive": True, "hpu": 0}
    gone = {"address": "10.0.0.2", "alive": False, "hpu": 0}
    assert agent.nodes(asked) == {"nodes": [first, second, third, gone]}
    options = {
        "address": "10.0.0.1:8850", "_node_ip_address": "10.0.0.1", "log_to_driver": False,
        "logging_level": "ERROR",
    }  # fmt: skip
    assert made == [("", options), ("shutdown", {})]
    # the time is over; and no more cards are needed
    views += [few, few]
    assert agent.nodes({**asked, "seconds": 0.0}) == {"nodes": [first]}
    assert agent.nodes({**asked, "wanted": 8}) == {"nodes": [first]}
