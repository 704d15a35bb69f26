"""Hosts of a cluster that answer from a function instead of over ssh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.hosts import ssh
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.layout import Layout
from gaudi_launch.core.hosts.parts import Cluster, ClusterEngine, Node
from gaudi_launch.core.hosts.ssh import RemoteError
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Plan

Request = Mapping[str, Any]
GONE = message("cluster.unreachable", host="b", ssh="me@b", why="No route to host")
WHY = message("cluster.as_asked")


@dataclass
class ScriptedHosts:
    """Hosts that answer by ``reply``, which may raise RemoteError."""

    reply: Callable[[str, Request], Mapping[str, Any]]
    asked: list[tuple[str, Request, float]] = field(default_factory=list)

    def ask(self, member: Member, request: Request, seconds: float) -> dict[str, Any]:
        self.asked.append((member.name, request, seconds))
        return dict(self.reply(member.name, request))


def scripted(
    monkeypatch: pytest.MonkeyPatch, reply: Callable[[str, Request], Mapping[str, Any]]
) -> ScriptedHosts:
    """Let ssh's requests be answered by a function, one host at a time."""
    hosts = ScriptedHosts(reply)
    monkeypatch.setattr(ssh, "ask", hosts.ask)
    monkeypatch.setattr(ssh, "_MOST_AT_ONCE", 1)
    monkeypatch.setattr(interrupt, "TURN_SECONDS", 1 / 1024)
    return hosts


def gone() -> Mapping[str, Any]:
    """Answer as a host that cannot be reached."""
    raise RemoteError(GONE)


def member(name: str) -> Member:
    return Member(name, f"me@{name}")


def cluster(*engines: str) -> Cluster:
    """Return a cluster of engines; "ab" is one on two hosts of two cards."""
    names = "".join(engines)
    addresses = {name: f"10.0.0.{number}" for number, name in enumerate(names, 1)}
    command = Command(("engine", "--port", "1"), {"A": "b"})
    parts = tuple(
        ClusterEngine(
            tuple(
                Node(member(name), addresses[name], "ens1", (0, 1), {"OWN": name}) for name in group
            ),
            command,
            f"http://{addresses[group[0]]}:1",
        )
        for group in engines
    )
    size = len(engines[0])
    layout = Layout(2 * size, 1, len(engines), 0, len(names), 2, WHY, "")
    plan = Plan(EngineIdentity("e", "1"), {"path": "/m"}, Placement(()), (), command, "http://x:1")
    return Cluster("c", layout, parts, (), plan, "/m", None, 8850)


def failed(do: Callable[[], object]) -> tuple[str, ExitCode, Mapping[str, Any], str | None]:
    """Return the LaunchError of a call: its ID, exit code, values and detail."""
    with pytest.raises(LaunchError) as caught:
        do()
    error = caught.value
    return error.id, error.exit_code, error.text.values, error.detail
