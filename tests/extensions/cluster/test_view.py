"""A running cluster: its state, its end, and the commands of a dry run."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.steps import render_stop
from gaudi_launch.extensions.cluster import view as cluster
from gaudi_launch.extensions.cluster.lifecycle import HostState, State
from gaudi_launch.extensions.cluster.state import Part, Place, RunningCluster
from tests.support.views import for_programs, views

pytestmark = pytest.mark.usefixtures("plain_english")

HEAD, OTHER = Member("a", "me@a"), Member("b", "b")
RUNNING = RunningCluster(
    "site",
    ray=True,
    ray_port=8850,
    cards=16,
    parts=(
        Part((Place(HEAD, "10.0.0.1"), Place(OTHER, "10.0.0.2")), "http://10.0.0.1:1"),
        Part((Place(OTHER, "10.0.0.2"),), "http://10.0.0.2:2"),
    ),
)
NODES = ({"alive": True, "hpu": 8}, {"alive": True, "hpu": 4}, {"alive": False, "hpu": 8})
TROUBLE = message("common.interrupted")
STATE = State(
    (HostState("a", {"ray": 7, "service": None}), HostState("b", {}, TROUBLE)),
    (NODES, None),
    (True, False),
    ("", "refused"),
)
SOUND = State((HostState("a", {"ray": 7}),), (NODES[:1], None), (True, True), ("", ""))


def test_a_state(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "cluster-status",
        [
            lambda: cluster.show_status(RUNNING, STATE, False),
            lambda: cluster.show_status(RUNNING, SOUND, False),
        ],
        [
            for_programs(capsys, lambda: cluster.show_status(RUNNING, STATE, True)),
            for_programs(capsys, lambda: cluster.show_status(RUNNING, SOUND, True)),
        ],
    )


ENDED = {("a", "service"): None, ("b", "unreachable"): TROUBLE}


def test_an_end_names_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "cluster-down",
        [
            lambda: cluster.show_down(ENDED, (HEAD, OTHER), False),
            lambda: cluster.show_down({}, (HEAD,), False),
        ],
        [for_programs(capsys, lambda: cluster.show_down(ENDED, (HEAD, OTHER), True))],
    )


def test_a_dry_run_prints_the_commands_that_end_it(capsys: pytest.CaptureFixture[str]) -> None:
    lines = render_stop((HEAD, OTHER), "site")
    assert len(lines) > 0
    cluster.dry_down((HEAD, OTHER), "site", False)
    assert capsys.readouterr().out == "\n".join(lines) + "\n"
    assert for_programs(capsys, lambda: cluster.dry_down((HEAD, OTHER), "site", True)) == {
        "schema": 1,
        "hosts": ["a", "b"],
        "commands": lines,
    }
