"""Requests to hosts, and what is made of their answers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.hosts import agent, ssh
from gaudi_launch.core.hosts.differences import Seen
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.ssh import RemoteError, no_connection
from gaudi_launch.core.hosts.steps import ssh_words
from tests.support.scripted_hosts import member, scripted

A = member("a")
HERE = Member("here", "local", python="/env/python", enter=("docker", "exec", "-i", "x"))


PROGRAM = """#!/bin/sh
printf '%s\\n' "$0" "$@" > "{folder}/argv"
cat "{folder}/out"
cat "{folder}/err" >&2
exit $(cat "{folder}/code")
"""


class Commands:
    """Stand in for ssh and another launcher: the outcome, and the arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("ssh", "launcher"):
            (folder / name).write_text(PROGRAM.format(folder=folder))
            (folder / name).chmod(0o755)

    def ends(self, out: str, err: str = "", code: int = 0) -> None:
        for name, text in (("out", out), ("err", err), ("code", str(code))):
            (self.folder / name).write_text(text)

    @property
    def argv(self) -> list[str]:
        return (self.folder / "argv").read_text().splitlines()


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Commands(tmp_path)


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
    ],
)
def test_a_host_without_an_answer(
    commands: Commands, outcome: tuple[str, str, int], why: Message
) -> None:
    commands.ends(*outcome)
    assert trouble(lambda: ssh.ask(A, {}, 20.0)) == why


def test_the_launcher_of_a_host_makes_its_snapshot(commands: Commands) -> None:
    commands.ends('{"schema": 1}')
    launcher = f"{commands.folder}/launcher"
    words = ["devices", "snapshot", "-"]
    for host, argv in (
        (A, ssh_words(A, ["gaudi-launch", *words])),
        (replace(HERE, launcher=(launcher,)), [launcher, *words]),
    ):
        assert ssh.snapshot(host, 9.0) == {"schema": 1}
        assert [Path(commands.argv[0]).name, *commands.argv[1:]] == [Path(argv[0]).name, *argv[1:]]
    for text in ("[", "[]", ""):
        commands.ends(text)
        assert trouble(lambda: ssh.snapshot(A, 9.0)) == message("cluster.no_snapshot", host="a")


ENGINE = 'noise\ngaudi-launch-answer:{"packages": {"vllm": "0.9.0+cpu"}, "facts": {}}\n'
PROBED = {
    "time": 1100.0, "folders": {"/m": [2, 7]}, "tools": ["rsync"], "python": "3.11.7",
    "engine": ENGINE,
}  # fmt: skip


@pytest.mark.parametrize("engine", ["", "gaudi-launch-answer:[", "Traceback"])
def test_a_host_without_an_engine(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    scripted(monkeypatch, lambda name, request: {**PROBED, "engine": engine})
    seen = ssh.look(A, ("/m",), 60.0)
    assert (seen.installed, seen.python) == (None, "3.11.7")


@pytest.mark.parametrize(
    "changes", [{"time": "noon"}, {"folders": {"/m": [1]}}, {"tools": None}, {"folders": 1}]
)
def test_an_answer_of_another_form(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
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
