"""Requests to hosts, and what is made of their answers. No process is started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gaudi_launch import interrupt
from gaudi_launch.cluster import agent, ssh
from gaudi_launch.cluster.differences import Seen
from gaudi_launch.cluster.inventory import Member
from gaudi_launch.cluster.ssh import RemoteError
from gaudi_launch.cluster.steps import ssh_words
from gaudi_launch.messages import Message, message
from tests.support.scripted_hosts import member, scripted

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


def test_what_is_known_without_a_question() -> None:
    known = replace(A, snapshot="simulated:hls2")
    assert ssh.gather([known, member("b")], (), None, ask=False) == [
        (Seen(known), "simulated:hls2"),
        (Seen(member("b"), trouble=message("cluster.not_asked", host="b")), None),
    ]
