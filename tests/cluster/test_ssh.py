"""Requests to hosts, and what is made of their answers. No process is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch import interrupt
from gaudi_launch.cluster import agent, ssh
from gaudi_launch.cluster.differences import FolderFacts, Seen
from gaudi_launch.cluster.inventory import Member
from gaudi_launch.cluster.ssh import RemoteError, no_connection
from gaudi_launch.cluster.steps import HostStep, ssh_environment, ssh_words
from gaudi_launch.engines.detect import question
from gaudi_launch.errors import ExitCode
from gaudi_launch.messages import Message, message, set_language
from gaudi_launch.reader import standalone
from tests.support.scripted_hosts import GONE, WHY, gone, member, scripted

A = member("a")
HERE = Member("here", "local", python="/env/python", enter=("docker", "exec", "-i", "x"))


@dataclass
class Commands:
    """Stand in for `interrupt.run`: the outcome of each command, and its arguments."""

    outcome: tuple[str, str, int] | Exception = ("", "", 0)
    made: list[tuple[Sequence[str], dict[str, Any]]] = field(default_factory=list)

    def run(self, argv: Sequence[str], **words: Any) -> Any:
        self.made.append((argv, words))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        out, err, code = self.outcome
        return subprocess.CompletedProcess(argv, code, out, err)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    found = Commands()
    monkeypatch.setattr(interrupt, "run", found.run)
    return found


def trouble(do: Callable[[], object]) -> Message:
    """Return the reason of a host that could not be queried."""
    with pytest.raises(RemoteError) as caught:
        do()
    return caught.value.why


def marked(**answer: object) -> str:
    return f"{agent.MARK}{json.dumps(answer)}\n"


def test_a_request_is_a_program_on_standard_input(commands: Commands) -> None:
    commands.outcome = f"Welcome\n{marked(old=1)}{marked(new=1)}", "warning", 0
    request = {"do": "probe", "text": "it's\n'''"}
    assert ssh.ask(A, request, 20.0) == {"new": 1}
    ((argv, words),) = commands.made
    assert argv == ssh_words(A, ["python3", "-"])
    program = words.pop("streams").text_in
    assert words == {
        "env": ssh_environment(os.environ),
        "seconds": 20.0,
        "ending": interrupt.Ending(with_main=True, goodbye_seconds=0.0),
    }
    source = standalone(agent.__file__)
    said: list[str] = []
    assert program.startswith(f"{source}\nmain(")
    exec(program.removeprefix(source), {"main": said.append})
    assert json.loads(said[0]) == request


def test_this_machine_needs_no_ssh(commands: Commands) -> None:
    commands.outcome = marked(), "", 0
    assert ssh.ask(HERE, {}, 1.0) == {}
    ((argv, words),) = commands.made
    assert argv == ["docker", "exec", "-i", "x", "/env/python", "-"]
    # what it began here ends with its output
    ending = interrupt.Ending(with_main=True, goodbye_seconds=8.0)
    assert (words["env"], words["ending"]) == (None, ending)


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        ((marked(error="x" * 400), "", 0), message("cluster.host_failed", host="a", why="x" * 300)),
        (("text\n", "", 1), message("cluster.host_failed", host="a", why="text")),
        (("text\n", "one\ntwo\n", 1), message("cluster.host_failed", host="a", why="two")),
        (("", "y" * 400, 1), message("cluster.host_failed", host="a", why="y" * 300)),
        (("", "", 3), message("cluster.host_failed", host="a", why="exit status 3")),
        (("", " - ", 3), message("cluster.host_failed", host="a", why="exit status 3")),
        ((f"{agent.MARK}[", "bad", 0), message("cluster.host_failed", host="a", why="bad")),
        ((f"{agent.MARK}[]", "bad", 0), message("cluster.host_failed", host="a", why="bad")),
        (
            ("", "ssh: No route to host\n", 255),
            message("cluster.unreachable", host="a", ssh="me@a", why="ssh: No route to host"),
        ),
        (
            subprocess.TimeoutExpired("ssh", 20),
            message("cluster.host_slow", host="a", seconds="20"),
        ),
        (
            FileNotFoundError(2, "No such file"),
            message("cluster.no_ssh", host="a", program="ssh", why="No such file"),
        ),
        (OSError("odd"), message("cluster.no_ssh", host="a", program="ssh", why="odd")),
    ],
)
def test_a_host_without_an_answer(
    commands: Commands, outcome: tuple[str, str, int] | Exception, why: Message
) -> None:
    commands.outcome = outcome
    assert trouble(lambda: ssh.ask(A, {}, 20.0)) == why


def test_this_machine_may_end_with_ssh_status(commands: Commands) -> None:
    commands.outcome = "", "oops", 255
    why = message("cluster.host_failed", host="here", why="oops")
    assert trouble(lambda: ssh.ask(HERE, {}, 1.0)) == why


def test_the_error_of_a_host_ends_a_command() -> None:
    failure = RemoteError(GONE).failure()
    assert (failure.text, failure.exit_code) == (GONE, ExitCode.MACHINE)


def test_commands_run_outside_the_container(commands: Commands) -> None:
    commands.outcome = "text", "", 0
    boxed = replace(A, enter=("docker", "exec", "x"))
    assert ssh.words(boxed, ["id", "-u"], 5.0) == "text"
    ((argv, words),) = commands.made
    assert argv == ssh_words(A, ["id", "-u"])
    assert (words["streams"].text_in, words["seconds"]) == ("", 5.0)
    commands.outcome = "text", "why", 2
    failed = message("cluster.host_failed", host="a", why="why")
    assert trouble(lambda: ssh.words(boxed, ["id"], 5.0)) == failed
    commands.outcome = "text", "", 2
    failed = message("cluster.host_failed", host="a", why="text")
    assert trouble(lambda: ssh.words(boxed, ["id"], 5.0)) == failed


def test_the_launcher_of_a_host_makes_its_snapshot(commands: Commands) -> None:
    commands.outcome = '{"schema": 1}', "", 0
    other = replace(HERE, launcher=("/opt/gaudi-launch",))
    for each in (A, HERE, other):
        assert ssh.snapshot(each, 9.0) == {"schema": 1}
    words = ["devices", "snapshot", "-"]
    assert [argv for argv, _ in commands.made] == [
        ssh_words(A, ["gaudi-launch", *words]),
        [sys.executable, "-m", "gaudi_launch", *words],
        ["/opt/gaudi-launch", *words],
    ]
    assert {given["seconds"] for _, given in commands.made} == {9.0}
    for text in ("[", "[]", ""):
        commands.outcome = text, "", 0
        assert trouble(lambda: ssh.snapshot(A, 9.0)) == message("cluster.no_snapshot", host="a")


ENGINE = 'noise\ngaudi-launch-answer:{"packages": {"vllm": "0.9.0+cpu"}, "facts": {}}\n'
PROBED = {
    "time": 1100.0, "folders": {"/m": [2, 7]}, "tools": ["rsync"], "python": "3.11.7",
    "engine": ENGINE,
}  # fmt: skip


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1000.0, 1004.0])
    monkeypatch.setattr("gaudi_launch.cluster.ssh.time.time", lambda: next(times))


def test_the_facts_of_a_host(monkeypatch: pytest.MonkeyPatch, clock: None) -> None:
    hosts = scripted(monkeypatch, lambda name, request: PROBED)
    seen = ssh.look(A, ("/m",), 60.0)
    request = {"do": "probe", "folders": ["/m"], "question": question()}
    assert hosts.asked == [("a", request, 60.0)]
    assert seen.installed is not None
    assert (seen.installed.python, seen.installed.packages["vllm"]) == ("python3", "0.9.0+cpu")
    # the host read its clock between the two times: 98 s ahead, give or take 2 s
    assert replace(seen, installed=None) == Seen(
        A, python="3.11.7", clock=98.0, clock_within=2.0, folders={"/m": FolderFacts(2, 7)},
        tools=("rsync",),
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["", "gaudi-launch-answer:[", "Traceback"])
def test_a_host_without_an_engine(
    monkeypatch: pytest.MonkeyPatch, clock: None, engine: str
) -> None:
    scripted(monkeypatch, lambda name, request: {**PROBED, "engine": engine})
    seen = ssh.look(A, ("/m",), 60.0)
    assert (seen.installed, seen.python) == (None, "3.11.7")


@pytest.mark.parametrize(
    "changes", [{"time": "noon"}, {"folders": {"/m": [1]}}, {"tools": None}, {"folders": 1}]
)
def test_an_answer_of_another_form(
    monkeypatch: pytest.MonkeyPatch, clock: None, changes: dict[str, object]
) -> None:
    scripted(monkeypatch, lambda name, request: {**PROBED, **changes})
    why = message("cluster.host_failed", host="a", why="no answer")
    assert trouble(lambda: ssh.look(A, (), 60.0)) == why


STEP = HostStep(A, ("engine", "x"), WHY, {"E": "1"}, "service", ("S", "T"), {"/f": "text"})


def test_a_step_begins_with_its_secrets_only(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = scripted(monkeypatch, lambda name, request: {"pid": 7, "exit": None})
    assert ssh.begin(STEP, "c/a", {"S": "s", "U": "u"}) == {"pid": 7, "exit": None}
    request = {
        "do": "start", "folder": "c/a", "name": "service", "argv": ["engine", "x"],
        "env": {"E": "1"}, "files": {"/f": "text"}, "secrets": {"S": "s"}, "settle": 2.0,
        "lease": 0.0,
    }  # fmt: skip
    assert hosts.asked == [("a", request, 62.0)]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            {"running": 9},
            message("cluster.runs_already", host="a", what="service", pid=9),
        ),
        (
            {"failed": "No such file"},
            message("cluster.not_started", host="a", program="engine", why="No such file"),
        ),
    ],
)
def test_a_step_that_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, object], why: Message
) -> None:
    scripted(monkeypatch, lambda name, request: answer)
    assert trouble(lambda: ssh.begin(STEP, "c/a", {})) == why


def test_a_step_runs_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = scripted(monkeypatch, lambda name, request: {"code": 0, "output": "text"})
    ssh.do(STEP, 5.0)
    assert hosts.asked == [("a", {"do": "run", "argv": ["engine", "x"], "seconds": 5.0}, 35.0)]
    outputs = {"one\ntwo\n": "two", "": "-", "x" * 400: "x" * 300}
    for output, last in outputs.items():
        answer = {"code": 1, "output": output}
        monkeypatch.setattr(ssh, "ask", lambda *words, answer=answer: answer)
        why = message("cluster.step_failed", host="a", program="engine", why=last)
        assert trouble(lambda: ssh.do(STEP, 5.0)) == why
    scripted(monkeypatch, lambda name, request: {})
    why = message("cluster.step_failed", host="a", program="engine", why="-")
    assert trouble(lambda: ssh.do(STEP, 5.0)) == why


def test_hosts_are_queried_together_and_answers_keep_their_order() -> None:
    members = [member(name) for name in "abc"]

    def do(one: Member) -> str:
        return str(gone()) if one.name == "b" else one.name

    first, second, third = ssh.each(members, do)
    assert (first, third) == ("a", "c")
    assert isinstance(second, RemoteError) and second.why == GONE
    assert ssh.each([], do) == []


def test_what_is_known_without_a_question() -> None:
    known = replace(A, snapshot="simulated:hls2")
    assert ssh.gather([known, member("b")], (), None, ask=False) == [
        (Seen(known), "simulated:hls2"),
        (Seen(member("b"), trouble=message("cluster.not_asked", host="b")), None),
    ]


def test_facts_and_snapshots_are_gathered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = replace(A, snapshot="a.json")
    looked: list[tuple[str, object, float]] = []

    def look(one: Member, folders: Sequence[str], seconds: float) -> Seen:
        looked.append((one.name, folders, seconds))
        if one.name == "b":
            gone()
        return Seen(one, python="3.11")

    monkeypatch.setattr(ssh, "look", look)
    monkeypatch.setattr(ssh, "snapshot", lambda one, seconds: {"é": [one.name, seconds]})
    members = [known, member("b"), member("c")]
    path = tmp_path / "c.json"
    found = ssh.gather(members, ("/m",), tmp_path, ask=True, seconds=7.0)
    assert found == [
        (Seen(known, python="3.11"), "a.json"),
        (Seen(member("b"), trouble=GONE), None),
        (Seen(member("c"), python="3.11"), str(path)),
    ]
    assert sorted(looked) == [(name, ("/m",), 14.0) for name in "abc"]
    assert [each.name for each in tmp_path.iterdir()] == ["c.json"]
    assert json.loads(path.read_text()) == {"é": ["c", 7.0]}
    # where snapshots are not kept
    assert ssh.gather([member("c")], (), None, ask=True) == [
        (Seen(member("c"), python="3.11"), None)
    ]
    assert looked[-1] == ("c", (), 120.0)


CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Offending ED25519 key in /home/me/.ssh/known_hosts:2
Host key for 10.0.0.2 has changed and you have requested strict checking.
Host key verification failed.
"""
CLOSED = """\
kex_exchange_identification: Connection closed by remote host
Connection closed by UNKNOWN port 65535
"""
DENIED = "root@10.0.0.1: Permission denied (publickey,password).\n"


@pytest.mark.parametrize(
    ("errors", "id", "values"),
    [
        (CHANGED, "cluster.key_changed", {"known": "10.0.0.2"}),
        (f"{CHANGED}{CLOSED}", "cluster.key_changed", {"known": "10.0.0.2"}),
        ("Host key verification failed.\n", "cluster.key_unknown", {}),
        (f"Host key verification failed.\n{CLOSED}", "cluster.key_unknown", {}),
        (DENIED, "cluster.no_login", {"why": DENIED.strip().rstrip(".")}),
        (
            f"Permission denied, please try again.\n{DENIED}{CLOSED}",
            "cluster.no_login",
            {"why": DENIED.strip().rstrip(".")},
        ),
        (
            f"ssh: connect to host 10.0.0.1 port 22: Connection refused\n{CLOSED}",
            "cluster.unreachable",
            {"why": "ssh: connect to host 10.0.0.1 port 22: Connection refused"},
        ),
        (
            "Connection timed out during banner exchange\n"
            "Connection to UNKNOWN port 65535 timed out\n",
            "cluster.unreachable",
            {"why": "Connection timed out during banner exchange"},
        ),
        (
            "Timeout, server 10.0.0.2 not responding.\n",
            "cluster.unreachable",
            {"why": "Timeout, server 10.0.0.2 not responding"},
        ),
        (CLOSED, "cluster.unreachable", {"why": "Connection closed by UNKNOWN port 65535"}),
        ("", "cluster.unreachable", {"why": "-"}),
    ],
)
def test_the_cause_is_named(errors: str, id: str, values: dict[str, str]) -> None:
    found = no_connection(Member("host-b", "me@b"), errors)
    assert (found.id, dict(found.values)) == (id, {"host": "host-b", "ssh": "me@b", **values})


def test_the_sentence_ends_with_what_to_do() -> None:
    set_language("en")
    lines = [
        no_connection(Member("b", "me@b"), errors).render()
        for errors in (CHANGED, "Host key verification failed.", DENIED, "Connection refused")
    ]
    set_language(None)
    assert [line.rpartition(": ")[2] for line in lines] == [
        "ssh-keygen -R 10.0.0.2",
        "ssh me@b",
        "ssh-copy-id me@b",
        "ssh -o BatchMode=yes me@b true",
    ]
