"""The agent of a host, called in this process: processes of a folder instead of /proc, and time
that passes only while something waits."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cluster import agent

TERM, KILL = signal.SIGTERM, signal.SIGKILL


class Processes:
    """A folder like /proc, signals that are only noted, and a clock that waiting moves.

    ``leave`` says which signals end a process, and how many seconds later.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seconds = 100.0
        self.signals: list[tuple[int, int]] = []
        self.leave: dict[tuple[int, int], float] = {}
        self.ends: dict[int, float] = {}

    def path(self, text: object) -> Path:
        path = Path(str(text))
        return self.root / path.relative_to("/") if path.is_relative_to("/proc") else path

    def add(
        self, pid: int, parent: int, session: int, started: int, state: str = "S", threads: int = 1
    ) -> None:
        folder = self.root / "proc" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        fields = [state, parent, 1, session, *range(4, 17), threads, 0, started, 0]
        words = " ".join(str(each) for each in fields)
        (folder / "stat").write_text(f"{pid} (a) b) {words}\n")

    def remove(self, pid: int) -> None:
        folder = self.root / "proc" / str(pid)
        (folder / "stat").unlink()
        folder.rmdir()

    def kill(self, pid: int, number: int) -> None:
        if not (self.root / "proc" / str(pid)).exists():
            raise ProcessLookupError(pid)
        self.signals.append((pid, number))
        after = self.leave.get((pid, number))
        if after is not None:
            self.ends[pid] = self.seconds + after
            self.sleep(0.0)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        for pid in [pid for pid, at in self.ends.items() if at <= self.seconds]:
            del self.ends[pid]
            self.remove(pid)


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    found = Processes(tmp_path)
    clock = types.SimpleNamespace(monotonic=lambda: found.seconds, sleep=found.sleep)
    monkeypatch.setattr(agent, "Path", found.path)
    monkeypatch.setattr(agent, "time", clock)
    monkeypatch.setattr("gaudi_launch.cluster.agent.os.kill", found.kill)
    return found


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the member c/a."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "state" / "gaudi-launch" / "cluster" / "c" / "a"
    folder.mkdir(parents=True)
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
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(values))


def test_a_process_as_the_kernel_shows_it(processes: Processes) -> None:
    processes.add(7, 3, 5, 900)
    processes.add(8, 3, 5, 900, "Z", 1)
    processes.add(9, 3, 5, 900, "Z", 2)
    (processes.root / "proc" / "10").mkdir()
    (processes.root / "proc" / "10" / "stat").write_text("10 (short) S 3")
    assert [agent.stat(pid) for pid in (7, 8, 9, 10, 11)] == [
        (3, 5, 900, "S"),
        None,
        # its first thread ended, another has not
        (3, 5, 900, "Z"),
        None,
        None,
    ]


def test_only_the_process_that_was_started_counts(processes: Processes, tmp_path: Path) -> None:
    processes.add(7, 1, 7, 900)
    record(tmp_path, "same", pid=7, started=900)
    record(tmp_path, "another", pid=7, started=899)
    record(tmp_path, "gone", pid=6, started=900)
    record(tmp_path, "partial", pid=7)
    (tmp_path / "damaged.json").write_text("[")
    names = ("same", "another", "gone", "partial", "damaged", "none")
    assert {name: agent.kept(tmp_path, name) for name in names} == {
        **dict.fromkeys(names, None),
        "same": 7,
    }


def test_a_family_is_descendants_and_the_session(processes: Processes) -> None:
    processes.add(10, 1, 10, 100)
    processes.add(11, 10, 10, 101)
    # in a session of its own, and what this one started
    processes.add(12, 11, 12, 102)
    processes.add(13, 12, 12, 103)
    # of the session, whose parent has ended
    processes.add(14, 1, 10, 104)
    processes.add(20, 1, 20, 105)
    (processes.root / "proc" / "self").mkdir()
    found = {10: 100, 11: 101, 12: 102, 13: 103, 14: 104}
    assert (agent.family(10), agent.family(99)) == (found, {})


def test_a_host_tells_versions_folders_and_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model" / "deep").mkdir(parents=True)
    (tmp_path / "model" / "x").write_bytes(b"12345")
    (tmp_path / "model" / "deep" / "y").write_bytes(b"12")
    (tmp_path / "model" / "dead").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr("gaudi_launch.cluster.agent.shutil.which", {"scp": "/bin/scp"}.get)
    asked: list[tuple[list[str], dict[str, Any]]] = []

    def run(argv: list[str], **words: Any) -> Any:
        asked.append((argv, words))
        return types.SimpleNamespace(stdout=b"answer \xff")

    monkeypatch.setattr("gaudi_launch.cluster.agent.subprocess.run", run)
    model, absent = str(tmp_path / "model"), str(tmp_path / "absent")
    before = time.time()
    found = agent.probe({"folders": [model, absent], "question": "print(1)"})
    assert before <= found.pop("time") <= time.time()
    assert found == {
        "folders": {model: [2, 7], absent: [0, 0]},
        "tools": ["scp"],
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "engine": "answer \N{REPLACEMENT CHARACTER}",
    }
    options = {
        "capture_output": True,
        "stdin": subprocess.DEVNULL,
        "timeout": 60,
        "check": False,
    }
    assert asked == [([sys.executable, "-c", "print(1)"], options)]


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaudi_launch.cluster.agent.os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError):
        agent.write(tmp_path / "own" / "file", "x")


def test_a_launcher_that_is_gone(
    caller: int, deserted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (agent.deserted({"caller": caller}), agent.deserted({"caller": deserted})) == (
        False,
        True,
    )
    ended: list[int] = []
    monkeypatch.setattr("gaudi_launch.cluster.agent.os._exit", ended.append)
    agent.leave_with_launcher({"caller": deserted})
    assert ended == [1]


def request(caller: int, *argv: str, **more: object) -> dict[str, Any]:
    return {
        "folder": "c/a", "name": "service", "argv": list(argv), "env": {}, "files": {},
        "settle": 5.0, "caller": caller, **more,
    }  # fmt: skip


def test_a_command_starts_with_its_files_and_variables(
    state: Path, caller: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "here")
    monkeypatch.setenv("A", "here")
    state.rmdir()
    path = tmp_path / "files" / "x"
    script = f"cat {path}; echo $OURS $A $B; pwd; echo $$ >&2; cat; exit 3"
    asked = request(
        caller, "sh", "-c", script, env={"A": "env", "B": "env"}, secrets={"B": "secret"},
        files={str(path): "text\n"},
    )  # fmt: skip
    state.mkdir(0o700)
    log = state / "service.log"
    log.write_text("of an earlier run, which was longer than this one will ever be")
    log.chmod(0o600)
    found = agent.start(asked)
    assert found == {"pid": found["pid"], "exit": 3}
    assert log.read_text() == f"text\nhere env secret\n/\n{found['pid']}\n"
    assert json.loads((state / "service.json").read_text())["pid"] == found["pid"]
    assert sorted(each.name for each in state.iterdir()) == ["service.json", "service.log"]


def test_the_folder_and_the_log_are_private(state: Path, caller: int) -> None:
    state.rmdir()
    agent.start(request(caller, "true"))
    modes = [path.stat().st_mode & 0o777 for path in (state, state / "service.log")]
    assert modes == [0o700, 0o600]


def test_a_command_that_does_not_exist(state: Path, caller: int) -> None:
    assert agent.start(request(caller, "/no/program")) == {"failed": "No such file or directory"}
    assert [each.name for each in state.iterdir()] == ["service.log"]


def test_what_runs_already_is_not_started_again(
    state: Path, caller: int, processes: Processes
) -> None:
    processes.add(7, 1, 7, 900)
    record(state, "service", pid=7, started=900)
    assert agent.start(request(caller, "true")) == {"running": 7}
    assert [each.name for each in state.iterdir()] == ["service.json"]


def test_what_continues_is_recorded_with_its_guard(
    state: Path, caller: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded: list[tuple[object, ...]] = []

    def guard(*words: object) -> int:
        assert (state / agent.LEASE).exists()
        guarded.append(words)
        return 77

    monkeypatch.setattr(agent, "guard", guard)
    found = agent.start(request(caller, "sleep", "60", settle=0.0, lease=5))
    pid = found["pid"]
    try:
        known = agent.stat(pid)
        assert known is not None and known[1] == pid
        assert found == {"pid": pid, "exit": None}
        written = json.loads((state / "service.json").read_text())
        assert written == {"pid": pid, "started": known[2], "guard": 77}
        assert guarded == [(state, "service", 5.0)]
    finally:
        os.kill(pid, KILL)
        os.waitpid(pid, 0)


def test_a_start_that_lost_its_launcher_is_ended(
    state: Path, deserted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[int, float]] = []

    def end(pid: int, timeout: float) -> str:
        ended.append((pid, timeout))
        os.kill(pid, KILL)
        os.waitpid(pid, 0)
        return "killed"

    monkeypatch.setattr(agent, "end", end)
    agent.start(request(deserted, "sleep", "60"))
    ((pid, timeout),) = ended
    assert (pid, timeout) == (json.loads((state / "service.json").read_text())["pid"], 5.0)


class LeftError(Exception):
    """The end of a forked process."""


@pytest.fixture
def forked(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Let `guard` run as if it were the forked process; return what it does to itself."""
    done: list[tuple[object, ...]] = []

    def note(name: str) -> Callable[..., None]:
        return lambda *words: done.append((name, *words))

    def leave(status: int) -> None:
        done.append(("exit", status))
        raise LeftError

    system = types.SimpleNamespace(
        fork=lambda: 0, open=lambda *words: 50, devnull=os.devnull, O_RDWR=os.O_RDWR,
        dup2=note("dup2"), closerange=note("closerange"), setsid=note("setsid"), _exit=leave,
    )  # fmt: skip
    monkeypatch.setattr(agent, "os", system)
    monkeypatch.setattr(agent, "stop", note("stop"))
    return done


DETACHED = [("dup2", 50, 0), ("dup2", 50, 1), ("dup2", 50, 2), ("closerange", 3, 256), ("setsid",)]


def test_a_guard_ends_what_has_lost_its_launcher(
    processes: Processes, forked: list[tuple[object, ...]], tmp_path: Path
) -> None:
    processes.add(7, 1, 7, 900)
    record(tmp_path, "service", pid=7, started=900)
    (tmp_path / agent.LEASE).touch()
    with pytest.raises(LeftError):
        agent.guard(tmp_path, "service", 3.0)
    ending = {"folder": tmp_path, "names": ["service"], "timeout": 30.0}
    assert forked == [*DETACHED, ("stop", ending), ("exit", 0)]
    # every half second, and only after the lease
    assert processes.seconds == 103.5


def test_the_launching_process_gets_the_pid_of_the_guard(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gaudi_launch.cluster.agent.os.fork", lambda: 78)
    assert agent.guard(tmp_path, "service", 3.0) == 78


@pytest.mark.parametrize(
    ("pid", "session", "program", "signals"),
    [
        (30, 30, "python", [(30, KILL)]),
        # the number was given to another process
        (30, 30, "other", []),
        (30, 29, "python", []),
        # this process is the guard that ends the rest
        (os.getpid(), os.getpid(), "python", []),
    ],
    # a process's number in a name: each worker would collect another test
    ids=["guard", "another program", "another session", "this process"],
)
def test_only_a_guard_is_ended_as_one(
    processes: Processes, pid: int, session: int, program: str, signals: list[tuple[int, int]]
) -> None:
    root = processes.root
    (root / "other").write_text("")
    programs = {"python": Path(f"/proc/{os.getpid()}/exe"), "other": root / "other"}
    processes.add(pid, 1, session, 900)
    (root / "proc" / str(pid) / "exe").symlink_to(programs[program])
    record(root, "service", pid=7, started=1, guard=pid)
    agent.end_guard(root, "service")
    assert processes.signals == signals


def test_a_guard_that_is_gone_or_unknown(processes: Processes, tmp_path: Path) -> None:
    for values in ({"guard": 31}, {"pid": 1}, {"guard": "x"}):
        record(tmp_path, "service", **values)
        agent.end_guard(tmp_path, "service")
    agent.end_guard(tmp_path, "other")
    assert processes.signals == []


def test_a_release_removes_the_lease(state: Path) -> None:
    (state / agent.LEASE).touch()
    for _ in range(2):
        assert agent.release({"folder": "c/a"}) == {}
    assert [*state.iterdir()] == []


def test_a_long_log_comes_in_parts(state: Path) -> None:
    (state / "service.log").write_bytes(b"x" * ((1 << 20) + 5))
    found = agent.status({"folder": "c/a", "names": [], "log": "service"})
    assert (len(found["log"]), found["offset"]) == (1 << 20, 1 << 20)


def test_a_stop_ends_names_in_their_order(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[object, ...]] = []
    results = {7: "ended", 8: "stuck"}
    pids = {"service": 7, "ray": 8}
    monkeypatch.setattr(agent, "kept", lambda folder, name: pids.get(name))
    monkeypatch.setattr(agent, "end_guard", lambda folder, name: done.append((folder, name)))

    def end(pid: int, timeout: float) -> str:
        done.append((pid, timeout))
        return results[pid]

    monkeypatch.setattr(agent, "end", end)
    for name in ("service", "ray", "other"):
        record(state, name)
    (state / agent.LEASE).touch()
    names = ["service", "ray", "other"]
    asked = {"folder": "c/a", "names": names, "timeout": 2.0}
    ended = {"service": "ended", "ray": "stuck", "other": "none"}
    assert agent.stop(asked) == {"ended": ended}
    assert done == [(state, "service"), (7, 2.0), (state, "ray"), (8, 2.0), (state, "other")]
    # what is stuck in the kernel stays recorded, with its lease
    assert sorted(each.name for each in state.iterdir()) == [agent.LEASE, "ray.json"]
    results[8] = "killed"
    assert agent.stop(asked) == {"ended": {**ended, "ray": "killed"}}
    assert [*state.iterdir()] == []
    # without a lease and a record
    assert agent.stop({**asked, "names": ["other"]}) == {"ended": {"other": "none"}}


def three(processes: Processes, leave: Mapping[tuple[int, int], float]) -> None:
    for pid, parent in ((10, 1), (11, 10), (12, 11)):
        processes.add(pid, parent, 10, 100 + pid)
    processes.add(20, 1, 20, 300)
    processes.leave = dict(leave)


def test_what_remains_gets_sigterm_and_then_sigkill(processes: Processes) -> None:
    three(processes, {(10, TERM): 0.0, (11, TERM): 1.0, (12, KILL): 0.0})
    assert agent.end(10, 30.0) == "killed"
    assert processes.signals == [(10, TERM), (11, TERM), (12, TERM), (12, KILL)]
    # five seconds for those that remain, however long the first had
    assert processes.seconds == pytest.approx(105.0, abs=0.11)


def test_what_ends_with_the_second_sigterm_is_not_killed(processes: Processes) -> None:
    three(processes, {(10, TERM): 0.0, (11, TERM): 1.0, (12, TERM): 2.0})
    assert agent.end(10, 30.0) == "ended"
    assert processes.seconds == pytest.approx(102.0, abs=0.11)


def test_a_command_runs_to_its_end(caller: int) -> None:
    def run(script: str) -> dict[str, Any]:
        argv = ["sh", "-c", script]
        return agent.run({"argv": argv, "seconds": 20.0, "caller": caller})

    assert run("echo out; echo err >&2; cat; exit 3") == {"code": 3, "output": "out\nerr\n"}
    # the last 4000 bytes
    assert run("printf '%5000d' 7") == {"code": 0, "output": " " * 3999 + "7"}
    missing = agent.run({"argv": ["/no/rsync"], "seconds": 1.0, "caller": caller})
    assert missing == {"code": 127, "output": "No such file or directory"}


def test_a_command_that_is_late_or_not_awaited_is_ended(
    caller: int, deserted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[float] = []

    def end(pid: int, timeout: float) -> str:
        # it leads a session, whose processes are ended with it
        assert os.getsid(pid) == pid
        ended.append(timeout)
        os.kill(pid, KILL)
        os.waitpid(pid, 0)
        return "killed"

    monkeypatch.setattr(agent, "end", end)
    argv = ["sleep", "60"]
    late = {"code": 124, "output": "0.05 s"}
    assert agent.run({"argv": argv, "seconds": 0.05, "caller": caller}) == late
    alone = {"code": 124, "output": "60 s"}
    assert agent.run({"argv": argv, "seconds": 60.0, "caller": deserted}) == alone
    assert ended == [5.0, 5.0]


def test_a_port_that_accepts_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, ...]] = []
    refusals = [OSError("refused"), OSError("refused")]

    def connect(*words: object, **more: object) -> Any:
        made.append((*words, more))
        if refusals:
            raise refusals.pop()
        return types.SimpleNamespace(close=lambda: made.append(("closed",)))

    passed = itertools.count(100.0, 1.0)
    slept: list[float] = []
    clock = types.SimpleNamespace(monotonic=lambda: next(passed), sleep=slept.append)
    monkeypatch.setattr(agent, "time", clock)
    monkeypatch.setattr("gaudi_launch.cluster.agent.socket.create_connection", connect)
    asked = {"host": "10.0.0.1", "port": 8850, "seconds": 3.0}
    assert agent.listening(asked) == {"open": True}
    attempt = (("10.0.0.1", 8850), {"timeout": 2})
    assert (made, slept) == ([attempt, attempt, attempt, ("closed",)], [0.3, 0.3])
    refusals += [OSError("refused")] * 9
    assert agent.listening(asked) == {"open": False, "why": "refused"}
    assert len(refusals) == 9 - 3


def test_a_clock_that_jumps_does_not_end_the_wait_for_a_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jumps = itertools.count(time.time(), 3600)
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    with socket.socket() as bound:
        # bound but not listening: connections are refused
        bound.bind(("127.0.0.1", 0))
        began = time.monotonic()
        found = agent.listening(
            {"host": "127.0.0.1", "port": bound.getsockname()[1], "seconds": 0.2}
        )
    assert found["open"] is False
    assert time.monotonic() - began >= 0.2


def node(address: str, hpu: float | None, alive: bool = True) -> dict[str, Any]:
    resources = {} if hpu is None else {"HPU": hpu}
    return {"NodeManagerAddress": address, "Alive": alive, "Resources": resources}


def test_the_nodes_of_ray_are_awaited(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = [
        [node("10.0.0.1", 8.0)],
        [node("10.0.0.1", 8.0), node("10.0.0.2", 8.0), node("10.0.0.3", None),
         node("10.0.0.2", 8.0, False)],
    ]  # fmt: skip
    made: list[tuple[str, dict[str, Any]]] = []
    ray = types.SimpleNamespace(
        init=lambda **words: made.append((os.environ.get("RAY_ADDRESS", ""), words)),
        nodes=lambda: views[min(int(processes.seconds - 100.0), 1)],
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
    assert processes.seconds == 101.0
    options = {
        "address": "10.0.0.1:8850", "_node_ip_address": "10.0.0.1", "log_to_driver": False,
        "logging_level": "ERROR",
    }  # fmt: skip
    assert made == [("", options), ("shutdown", {})]
    # the time is over
    processes.seconds = 100.0
    assert agent.nodes({**asked, "seconds": 0.5}) == {"nodes": [first]}
    assert processes.seconds == 100.5
    processes.seconds = 100.0
    assert agent.nodes({**asked, "wanted": 8}) == {"nodes": [first]}
    assert processes.seconds == 100.0


def test_a_service_is_tested_by_the_source_of_the_request() -> None:
    source = """
import sys, types
def probe(url, timeout, api_key):
    assert sys.modules["gaudi_launch_ready"].probe is probe
    return types.SimpleNamespace(ready=False, stage="model", detail=f"{url} {timeout} {api_key}",
                                 model="m")
"""
    asked = {"source": source, "url": "http://x", "seconds": 5.0, "key": ""}
    found = {"ready": False, "stage": "model", "detail": "http://x 5.0 None", "model": "m"}
    try:
        assert agent.ready(asked) == found
        with_key = {**found, "detail": "http://x 5.0 k"}
        assert agent.ready({**asked, "key": "k"}) == with_key
    finally:
        sys.modules.pop("gaudi_launch_ready", None)


@pytest.fixture
def answered(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], tuple[bytes, bytes]]]:
    """Yield `main` of a process with its own output and errors, which it exchanges."""
    kept = [os.dup(number) for number in (1, 2)]
    files = [tmp_path / name for name in ("out", "err")]

    def call(asked: dict[str, Any]) -> tuple[bytes, bytes]:
        for number, path in zip((1, 2), files, strict=True):
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        try:
            agent.main(json.dumps(asked))
        finally:
            for number, saved in zip((1, 2), kept, strict=True):
                os.dup2(saved, number)
        return files[0].read_bytes(), files[1].read_bytes()

    yield call
    for saved in kept:
        os.close(saved)


def test_one_marked_line_answers_a_request(
    answered: Callable[[dict[str, Any]], tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[tuple[object, ...]] = []

    def thread(target: object, args: tuple[dict[str, Any]], daemon: bool) -> Any:
        threads.append((target, args[0]["do"], daemon))
        return types.SimpleNamespace(start=lambda: threads.append(("started",)))

    monkeypatch.setattr(agent, "threading", types.SimpleNamespace(Thread=thread))

    def does(asked: dict[str, Any]) -> dict[str, Any]:
        # what a library prints comes in between
        os.write(1, b"noise")
        os.fstat(asked["caller"])
        if asked["do"] == "stop":
            raise ValueError("why")
        return {"did": asked["do"]}

    names = [*agent.DOES]
    for name in names:
        monkeypatch.setitem(agent.DOES, name, does)
    answers = {name: {"did": name} for name in names}
    answers["stop"] = {"error": "ValueError: why"}
    for name in names:
        line = f"\ngaudi-launch-cluster:{json.dumps(answers[name])}\n"
        assert answered({"do": name}) == (line.encode(), b"noise")
    looks = ["probe", "status", "listening", "nodes", "ready"]
    started = [((agent.leave_with_launcher, name, True), ("started",)) for name in looks]
    assert threads == [each for pair in started for each in pair]
    unknown = b'\ngaudi-launch-cluster:{"error": "KeyError: \'dance\'"}\n'
    assert answered({"do": "dance"}) == (unknown, b"")


def test_requests_have_the_names_of_their_functions() -> None:
    for name, function in agent.DOES.items():
        assert function is getattr(agent, name)
