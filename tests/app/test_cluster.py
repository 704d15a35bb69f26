"""cluster: hosts and their facts, what prevents a launch, secrets, and the record at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.app.cluster import (
    HostOptions,
    members,
    request_of,
)
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.errors import ExitCode
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")


# --- the case ------------------------------------------------------------------------------------


# --- options -------------------------------------------------------------------------------------


def test_hosts_are_named_in_one_way(tmp_path: Path) -> None:
    for words in (HostOptions(), HostOptions(hosts="a", inventory="f")):
        with refused("cluster.which_hosts", ExitCode.USAGE):
            members(words, None)
    found = members(HostOptions(hosts="a,b", enter="docker exec -i x"), "/p")
    assert [(each.name, each.python, each.enter) for each in found] == [
        (name, "/p", ("docker", "exec", "-i", "x")) for name in ("a", "b")
    ]
    file = tmp_path / "hosts.yaml"
    file.write_text("schema: 1\nhosts:\n- {name: h, ssh: user@h}\n")
    [listed] = members(HostOptions(inventory=str(file), enter="enter it"), "/p")
    assert (listed.name, listed.ssh, listed.python, listed.enter) == (
        "h",
        "user@h",
        "/p",
        ("enter", "it"),
    )


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ({"modules": "0"}, "-m"),
        ({"machine": "simulated:hls2"}, "--machine"),
        ({"tuning": "reference"}, "--tuning reference"),
    ],
)
def test_options_about_this_machine_are_refused(given: dict[str, str], flag: str) -> None:
    with refused("cluster.not_here", ExitCode.USAGE, flag=flag):
        request_of(LaunchOptions(model="m", **given))  # type: ignore[arg-type]


# --- launch and end ------------------------------------------------------------------------------
