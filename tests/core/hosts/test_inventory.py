"""Hosts from words and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.hosts.inventory import Member, parse_hosts, parse_inventory, read_inventory
from gaudi_launch.core.hosts.steps import ssh_words
from tests.support.refusals import raising


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=simulated:hls2+busy=0,1", [("a", "simulated:hls2+busy=0,1")]),
        (
            "a=simulated:hls2+busy=0,1+hot=2,b=simulated:gaudi2e-8",
            [("a", "simulated:hls2+busy=0,1+hot=2"), ("b", "simulated:gaudi2e-8")],
        ),
        (
            "a=simulated:hls2+hot=2+busy=0,1,7, 10.0.0.2",
            [("a", "simulated:hls2+hot=2+busy=0,1,7"), ("10.0.0.2", None)],
        ),
        ("a=simulated:hls2,7", [("a", "simulated:hls2"), ("7", None)]),
        ("a=file=1,7", [("a", "file=1"), ("7", None)]),
    ],
)
def test_modules_of_a_simulated_machine_have_commas(
    text: str, expected: list[tuple[str, str | None]]
) -> None:
    assert [(member.ssh, member.snapshot) for member in parse_hosts(text)] == expected


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(
        "schema: 1\nhosts:\n- g1\n- name: b\n  ssh: me@g2\n  address: 10.0.0.2\n"
        "  interface: ens8f0\n  snapshot: b.json\n  python: /venv/bin/python\n"
        "  enter: docker exec -i box\n  launcher: [sudo, gaudi-launch]\n"
    )
    assert read_inventory(path) == (
        Member("g1", "g1"),
        Member(
            "b",
            "me@g2",
            "10.0.0.2",
            "ens8f0",
            str(tmp_path / "b.json"),
            "/venv/bin/python",
            ("docker", "exec", "-i", "box"),
            ("sudo", "gaudi-launch"),
        ),
    )


@pytest.mark.parametrize(
    ("document", "id"),
    [
        ({}, "cluster.bad_inventory"),
        ([], "cluster.bad_inventory"),
        ({"schema": 2, "hosts": ["a"]}, "cluster.bad_inventory"),
        ({"schema": 1, "hosts": []}, "cluster.bad_inventory"),
        ({"schema": 1, "hosts": ["a"], "more": 1}, "cluster.bad_inventory"),
        ({"schema": 1, "hosts": [{"ssh": "a", "adress": "10.0.0.1"}]}, "cluster.bad_inventory"),
        ({"schema": 1, "hosts": [{"ssh": "a", "python": ["x"]}]}, "cluster.bad_inventory"),
        ({"schema": 1, "hosts": [{"ssh": "a", "python": "-c"}]}, "cluster.bad_inventory"),
        ({"schema": 1, "hosts": [{"ssh": "a", "enter": "it's"}]}, "cluster.bad_inventory"),
        ({"schema": 1, "hosts": [{"ssh": 7}]}, "cluster.bad_host"),
        ({"schema": 1, "hosts": [{"ssh": "a", "name": "../x"}]}, "cluster.bad_host"),
        ({"schema": 1, "hosts": [{"ssh": "a", "address": "10.0.0.300"}]}, "cluster.bad_address"),
        ({"schema": 1, "hosts": [{"ssh": "a", "address": "0.0.0.0"}]}, "cluster.bad_address"),
        ({"schema": 1, "hosts": [{"ssh": "a", "interface": "-x"}]}, "cluster.bad_interface"),
        (
            {
                "schema": 1,
                "hosts": [{"ssh": "a", "address": "10.0.0.1"}, {"ssh": "b", "address": "10.0.0.1"}],
            },
            "cluster.twice",
        ),
    ],
)
def test_bad_files(document: object, id: str) -> None:
    with raising(id):
        parse_inventory(document, "hosts.yaml", Path())


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("hosts: [")
    for name in ("none.yaml", "bad.yaml", "."):
        with raising("cluster.bad_inventory"):
            read_inventory(tmp_path / name)


@given(st.text())
def test_no_text_makes_an_option_of_ssh(text: str) -> None:
    try:
        members = parse_hosts(text)
    except LaunchError:
        return
    for member in members:
        words = ssh_words(member, ["python3", "-"])
        if not member.local:
            assert words[words.index("--") + 1] == member.ssh
            assert not member.ssh.startswith("-") and not set(member.ssh) & set(
                " \t\n;&|$`'\"%{}()<>\\*?!#~"
            )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
)
ROW = st.dictionaries(
    st.sampled_from(
        ["name", "ssh", "address", "interface", "snapshot", "python", "enter", "launcher", "more"]
    ),
    JSON,
)


@given(
    JSON | st.fixed_dictionaries({"schema": st.just(1), "hosts": st.lists(ROW | JSON, max_size=3)})
)
def test_no_document_ends_in_a_traceback(document: object) -> None:
    try:
        members = parse_inventory(json.loads(json.dumps(document)), "hosts.yaml", Path())
    except LaunchError:
        return
    assert members and all(not member.ssh.startswith("-") for member in members)
