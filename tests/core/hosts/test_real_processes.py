"""The edge: an ssh that runs its words here, in a home of each host's own. Real processes, no
Ray."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.hosts import agent, ssh
from gaudi_launch.core.hosts.differences import FolderFacts
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.layout import Layout
from gaudi_launch.core.hosts.parts import Cluster, ClusterEngine, Node
from gaudi_launch.core.hosts.ssh import RemoteError
from gaudi_launch.core.hosts.steps import HostStep, ssh_words
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Plan
from gaudi_launch.extensions.cluster import lifecycle
from gaudi_launch.extensions.cluster.readiness import Waits, wait_ready
from gaudi_launch.extensions.cluster.state import (
    Part,
    Place,
    RunningCluster,
    remember,
    remembered,
    running_of,
)
from tests.support.refusals import raising
from tests.support.waiting import GENEROUS, until

SSH = """#!/bin/sh
while [ "$1" != "--" ]; do shift; done
host="${2##*@}"
case "$host" in
    gone) echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255 ;;
    slow) exec sleep 60 ;;
    noisy) echo "Welcome to this machine" ;;
    liar) echo "gaudi-launch-cluster:[not json"; exit 0 ;;
esac
exec env XDG_STATE_HOME="$FAKE_HOSTS/$host" sh -c "$3"
"""
QUICK = Waits(stop=2.0, ask=20.0)
WHY = message("cluster.as_asked")


@pytest.fixture(autouse=True)
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_HOSTS", str(tmp_path))
    yield tmp_path
    left = [
        Member(path.parent.name, f"me@{path.parent.name}")
        for path in tmp_path.rglob("service.json")
    ]
    if left:
        lifecycle.down(left, "c", QUICK)


def member(name: str) -> Member:
    return Member(name, f"me@{name}")


def step(name: str, *argv: str, **changes: object) -> HostStep:
    return HostStep(member(name), argv, WHY, {"WORD": "it's $HOME"}, "service", **changes)  # type: ignore[arg-type]


def living(name: str) -> int | None:
    request = {"do": "status", "folder": f"c/{name}", "names": ["service"]}
    found = ssh.ask(member(name), request, 20)["alive"]["service"]
    return None if found is None else int(found)


def test_a_host_tells_of_itself(tmp_path: Path) -> None:
    (tmp_path / "model" / "deep").mkdir(parents=True)
    (tmp_path / "model" / "x").write_bytes(b"12345")
    (tmp_path / "model" / "deep" / "y").write_bytes(b"12")
    (tmp_path / "model" / "dead").symlink_to(tmp_path / "nowhere")
    seen = ssh.look(member("noisy"), [str(tmp_path / "model"), "/no/such"], 60)
    assert seen.folders == {str(tmp_path / "model"): FolderFacts(2, 7), "/no/such": FolderFacts()}
    assert seen.clock is not None and abs(seen.clock) < 5 and 0 < seen.clock_within < 60
    assert seen.installed is not None and seen.python is not None and seen.python.startswith("3.")


@pytest.mark.parametrize(
    ("name", "id", "words"),
    [
        ("gone", "cluster.unreachable", "No route to host"),
        ("slow", "cluster.host_slow", "1 s"),
        ("liar", "cluster.host_failed", "gaudi-launch-cluster"),
    ],
)
def test_hosts_that_cannot_be_asked(name: str, id: str, words: str) -> None:
    with pytest.raises(RemoteError) as error:
        ssh.look(member(name), [], 1 if name == "slow" else 60)
    assert error.value.why.id == id
    assert words in error.value.why.render()


def test_no_interpreter_there() -> None:
    with pytest.raises(RemoteError) as error:
        ssh.look(Member("a", "a", python="/no/python"), [], 60)
    assert error.value.why.id == "cluster.host_failed" and "/no/python" in error.value.why.render()


def test_no_ssh_here(no_programs: None) -> None:
    with pytest.raises(RemoteError) as error:
        ssh.look(member("a"), [], 60)
    assert error.value.why.id == "cluster.no_ssh"


def test_started_once_seen_and_ended_with_all_it_started(tmp_path: Path) -> None:
    # a child that does not listen to SIGTERM must go too
    deaf = tmp_path / "deaf.sh"
    deaf.write_text("trap '' TERM\nsleep 300 &\necho \"$WORD $SECRET\"\nwait\n")
    begun = step("a", "sh", "-c", f"sh {deaf} & sleep 300", secrets=("SECRET",))
    answer = ssh.begin(begun, "c/a", {"SECRET": "s3cret", "OTHER": "x"}, settle=0.5)
    assert (answer["exit"], living("a")) == (None, answer["pid"])
    with pytest.raises(RemoteError) as error:
        ssh.begin(begun, "c/a", {}, settle=0.1)
    assert error.value.why.id == "cluster.runs_already"
    log = tmp_path / "a" / "gaudi-launch" / "cluster" / "c" / "a" / "service.log"
    assert log.read_text() == "it's $HOME s3cret\n"
    assert [path.stat().st_mode & 0o777 for path in (log.parent, log)] == [0o700, 0o600]
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    family = [pid for pid in numbers if _session(pid) == answer["pid"]]
    assert len(family) >= 3
    assert lifecycle.down([member("a"), member("b")], "c", QUICK) == {("a", "service"): None}
    assert [pid for pid in family if _session(pid) == answer["pid"]] == []
    assert (living("a"), lifecycle.down([member("a")], "c", QUICK)) == (None, {})


def test_files_lie_there_before_it_starts(tmp_path: Path) -> None:
    path = tmp_path / "new" / "buckets.txt"
    log = tmp_path / "a" / "gaudi-launch" / "cluster" / "c" / "a" / "service.log"
    assert (
        ssh.begin(step("a", "cat", str(path), files={str(path): "it's $HOME\n"}), "c/a", {})["exit"]
        == 0
    )
    assert (log.read_text(), path.parent.stat().st_mode & 0o777) == ("it's $HOME\n", 0o700)
    # a folder that others may write into is no place for what an engine reads
    path.parent.chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    foreign = Path("/usr")
    if os.geteuid() == 0:
        foreign = tmp_path / "foreign"
        foreign.mkdir()
        os.chown(foreign, 65534, 65534)
    for trap in (path, tmp_path / "link" / "x", foreign / "x"):
        with pytest.raises(RemoteError) as error:
            ssh.begin(step("a", "true", files={str(trap): "x"}), "c/a", {})
        assert "belongs to another user" in error.value.why.render()


def _session(pid: int) -> int | None:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] == "Z" else int(words[3])


def test_a_pid_that_is_another_process_by_now_is_left_alone(tmp_path: Path) -> None:
    ssh.begin(step("a", "sleep", "300"), "c/a", {}, settle=0.1)
    path = tmp_path / "a" / "gaudi-launch" / "cluster" / "c" / "a" / "service.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "started": document["started"] - 1}))
    assert (living("a"), lifecycle.down([member("a")], "c", QUICK)) == (None, {})
    assert _session(document["pid"]) == document["pid"]
    path.write_text(json.dumps(document))
    assert lifecycle.down([member("a")], "c", QUICK) == {("a", "service"): None}


def test_what_ends_at_once_says_so() -> None:
    assert ssh.begin(step("a", "sh", "-c", "exit 7"), "c/a", {})["exit"] == 7
    with pytest.raises(RemoteError) as error:
        ssh.begin(step("a", "/no/program"), "c/a", {})
    assert error.value.why.id == "cluster.not_started"


def test_a_host_that_is_gone_keeps_no_other_from_being_cleaned() -> None:
    ssh.begin(step("b", "sleep", "300"), "c/b", {}, settle=0.1)
    told = lifecycle.down([member("gone"), member("b")], "c", QUICK)
    assert {key: trouble.id if trouble else None for key, trouble in told.items()} == {
        ("gone", "unreachable"): "cluster.unreachable",
        ("b", "service"): None,
    }
    assert living("b") is None


def test_commands_run_to_their_end() -> None:
    ssh.do(HostStep(member("a"), ("true",), WHY), 20)
    for argv, words in (
        (("sh", "-c", "echo full disk; exit 3"), "full disk"),
        (("/no/rsync",), "No such file"),
    ):
        with pytest.raises(RemoteError) as error:
            ssh.do(HostStep(member("a"), argv, WHY), 20)
        assert error.value.why.id == "cluster.step_failed" and words in error.value.why.render()


def killed_while_asking(request: dict[str, object], mark: Path) -> int:
    """The process that wrote its id into ``mark`` before the ssh that asked for it was killed."""
    program = f"{Path(agent.__file__).read_text()}\nmain({json.dumps(request)!r})\n"
    with subprocess.Popen(
        ssh_words(member("a"), ["python3", "-"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as asked:
        assert asked.stdin is not None
        asked.stdin.write(program)
        asked.stdin.close()
        until(lambda: mark.exists() and mark.read_text().endswith("\n"))
        asked.kill()
    return int(mark.read_text())


def test_a_command_ends_with_the_launcher_that_asked_for_it(tmp_path: Path) -> None:
    """As when ssh is killed by Ctrl-C in the middle of a copy, or of a start."""
    for what in ("run", "start"):
        argv = ["sh", "-c", f"echo $$ > {tmp_path / what}; exec sleep 300"]
        more = {
            "folder": "c/a",
            "name": "service",
            "env": {},
            "files": {},
            "settle": 60,
            "seconds": 60,
        }
        pid = killed_while_asking({"do": what, "argv": argv, **more}, tmp_path / what)
        until(lambda: _session(pid) is None)  # noqa: B023
    assert living("a") is None


def test_a_question_ends_with_the_launcher_that_asked_it(tmp_path: Path) -> None:
    """As when a library on the host takes no notice of Ctrl-C."""
    mark = tmp_path / "asking"
    held = f"""
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
with open({str(mark)!r}, "w") as file:
    print(os.getpid(), file=file)
time.sleep(300)
"""
    pid = killed_while_asking(
        {"do": "ready", "url": "http://x", "seconds": 300, "source": held}, mark
    )
    until(lambda: _session(pid) is None)


def test_a_service_is_tested_by_the_source_of_the_request() -> None:
    source = """
import os, sys, types
def probe(url, timeout, api_key):
    os.write(1, b"a library prints this")
    assert sys.modules["gaudi_launch_ready"].probe is probe
    return types.SimpleNamespace(ready=False, stage="model", detail=f"{url} {timeout} {api_key}",
                                 model="m")
"""
    asked = {"do": "ready", "source": source, "url": "http://x", "seconds": 5.0}
    found = {"ready": False, "stage": "model", "model": "m"}
    for key, shown in (("", "None"), ("k", "k")):
        answer = ssh.ask(member("a"), {**asked, "key": key}, 20)
        assert answer == {**found, "detail": f"http://x 5.0 {shown}"}


def one_engine(*names: str) -> Cluster:
    """A cluster of an engine on each host, whose engine only sleeps."""
    engines = tuple(
        ClusterEngine(
            (Node(member(name), "127.0.0.1", "lo", (), {}),),
            Command(("sleep", "300"), {}),
            "http://127.0.0.1:9",
        )
        for name in names
    )
    layout = Layout(1, 1, len(names), 0, len(names), 1, WHY, "")
    plan = Plan(
        EngineIdentity("cpu", "1"),
        {"path": "m"},
        Placement(()),
        (),
        engines[0].command,
        "http://x:1",
    )
    return Cluster("c", layout, engines, (), plan, "m", None, 8850)


def start_up(cluster: Cluster, folder: Path, waits: Waits, said: list[str] | None = None) -> None:
    folder.mkdir(exist_ok=True)
    told = said if said is not None else []
    lifecycle.up(cluster, (), {}, folder, lambda message: told.append(message.id), waits)


def test_another_start_does_not_forget_the_first(tmp_path: Path) -> None:
    state = tmp_path / "known"
    ssh.begin(step("a", "sleep", "300"), "c/a", {}, settle=0.1)
    state.mkdir()
    first = running_of(one_engine("a"))
    remember(state, first)
    (state / "service.log").write_text("kept")
    # elsewhere, with the same name: 'down' must still know of the first one
    for hosts in (("b",), ("a", "b"), ("b", "gone")):
        with raising("cluster.unreachable" if "gone" in hosts else "cluster.runs_already"):
            start_up(one_engine(*hosts), state, QUICK)
    assert (remembered(state), (state / "service.log").read_text()) == (first, "kept")
    assert (living("a") is not None, living("b")) == (True, None)
    # one that nobody can ask may still run
    remember(state, running_of(one_engine("gone")))
    with raising("cluster.former"):
        start_up(one_engine("b"), state, QUICK)


def test_a_start_that_fails_ends_what_it_began_and_nothing_else(tmp_path: Path) -> None:
    waits = Waits(stop=2.0, ask=20.0, ready=0.0, poll=0.1)
    said: list[str] = []
    with raising("cluster.not_ready"):
        start_up(one_engine("a"), tmp_path / "known", waits, said)
    assert living("a") is None
    assert said.count("cluster.taking_down") == 1
    # all of it is down: there is nothing to look at
    with raising("cluster.unknown"):
        remembered(tmp_path / "known")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_start_that_is_asked_to_end_takes_all_down(tmp_path: Path, number: int) -> None:
    def ask(message: Message) -> None:
        if message.id == "cluster.waiting":
            os.kill(os.getpid(), number)
        if message.id == "cluster.taking_down":
            # the terminal is gone
            raise OSError(5, "Input/output error")

    (tmp_path / "known").mkdir()
    with pytest.raises(KeyboardInterrupt):
        lifecycle.up(one_engine("a"), (), {}, tmp_path / "known", ask, QUICK)
    assert living("a") is None
    assert signal.getsignal(number) is signal.SIG_DFL


def test_ray_that_ends_on_a_worker_is_told(tmp_path: Path) -> None:
    places = (Place(member("a"), "127.0.0.1"), Place(member("b"), "127.0.0.2"))
    running = RunningCluster("c", True, 8850, 2, (Part(places, "http://127.0.0.1:9"),))
    for name in ("service", "ray"):
        ssh.begin(replace(step("a", "sleep", "300"), name=name), "c/a", {}, settle=0.1)
    (tmp_path / "known").mkdir()
    waits = Waits(ask=20.0, poll=0.1, workers=0.0)
    with raising("cluster.ray_died"):
        wait_ready(running, remember(tmp_path / "known", running), None, lambda _: None, waits)
    lifecycle.down([member("a")], "c", QUICK)


def test_status_of_what_is_half_there() -> None:
    places = (Place(member("a"), "127.0.0.1"), Place(member("gone"), "10.0.0.2"))
    running = RunningCluster("c", True, 8850, 4, (Part(places, "http://127.0.0.1:9"),))
    ssh.begin(step("a", "sleep", "300"), "c/a", {}, settle=0.1)
    state = lifecycle.status(running, None, QUICK)
    assert (state.whole, state.ready, state.ray) == (False, (False,), (None,))
    assert [
        (host.name, sorted(host.alive), host.trouble.id if host.trouble else None)
        for host in state.hosts
    ] == [("a", ["ray", "service"], None), ("gone", [], "cluster.unreachable")]
    assert "refused" in state.details[0]


def test_what_is_written_down_comes_back(tmp_path: Path) -> None:
    places = (
        Place(Member("a", "me@a", "10.0.0.1", enter=("docker", "exec", "-i", "x")), "10.0.0.1"),
    )
    running = RunningCluster("c", True, 8850, 16, (Part(places, "http://10.0.0.1:1"),))
    remember(tmp_path, running)
    assert remembered(tmp_path) == running
    started = time.monotonic()
    for text in ("{}", "[", '{"cluster": {"name": "c"}}'):
        (tmp_path / "cluster.json").write_text(text)
        with pytest.raises(Exception) as error:
            remembered(tmp_path)
        assert type(error.value).__name__ == "LaunchError"
    assert time.monotonic() - started < 5
    (tmp_path / "cluster.json").unlink()
    with raising("cluster.unknown"):
        remembered(tmp_path)


def test_this_machine_is_asked_by_this_program(no_programs: None) -> None:
    """Also where its folder is not on the PATH."""
    document = ssh.snapshot(Member("here", "local"), GENEROUS)
    assert document["schema"] == 1 and "host" in document


def guard(root: Path) -> int:
    """Return the guard that runs on a host, as soon as it leads its session."""
    (path,) = root.rglob("service.json")
    pid = int(json.loads(path.read_text())["guard"])
    until(lambda: _session(pid) == pid)
    return pid


def test_a_host_that_lost_the_launcher_ends_what_it_began(tmp_path: Path) -> None:
    answer = ssh.begin(step("a", "sleep", "300"), "c/a", {}, settle=0.1, lease=8.0)
    pid = guard(tmp_path / "a")
    # every question renews the lease
    for _ in range(12):
        time.sleep(1.0)
        assert living("a") == answer["pid"]
    until(lambda: _session(pid) is None)
    assert (_session(answer["pid"]), living("a")) == (None, None)
    assert [path.name for path in (tmp_path / "a").rglob("*") if path.is_file()] == ["service.log"]


def test_what_is_released_or_stopped_has_no_guard(tmp_path: Path) -> None:
    answer = ssh.begin(step("a", "sleep", "300"), "c/a", {}, settle=0.1, lease=20.0)
    pid = guard(tmp_path / "a")
    for _ in range(2):
        ssh.ask(member("a"), {"do": "release", "folder": "c/a"}, 20)
    until(lambda: _session(pid) is None)
    assert living("a") == answer["pid"]
    ssh.begin(step("b", "sleep", "300"), "c/b", {}, settle=0.1, lease=60.0)
    pid = guard(tmp_path / "b")
    assert lifecycle.down([member("a"), member("b")], "c", QUICK) == {
        ("a", "service"): None,
        ("b", "service"): None,
    }
    until(lambda: _session(pid) is None)
