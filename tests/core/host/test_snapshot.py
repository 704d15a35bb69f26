"""Snapshots: whole round trips, planning from one, and files that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.locks import Holder
from gaudi_launch.core.host import snapshot
from gaudi_launch.core.host.hardware import Card, Host, Interface, NumaNode
from gaudi_launch.core.host.machine import load
from tests.support.refusals import failing


def through_text(host: Host) -> Host:
    return snapshot.from_json(json.loads(json.dumps(snapshot.to_json(host))))


CPUS = st.sets(st.integers(0, 300), max_size=8).map(lambda numbers: tuple(sorted(numbers)))
WORDS = st.text(max_size=12)
NUMBERS = st.none() | st.integers(-1, 2**40)
MODULES = st.none() | st.integers(0, 1023)
CARDS = st.builds(
    Card,
    index=MODULES,
    module=MODULES,
    product=st.none() | WORDS,
    cpus=CPUS,
    ports_up=st.none() | st.lists(st.integers(0, 23)).map(tuple),
    busy=st.none() | st.booleans(),
    holders=st.lists(st.builds(Holder, st.integers(), WORDS, WORDS), max_size=2).map(tuple),
    sources=st.dictionaries(WORDS, WORDS, max_size=2),
)
HOSTS = st.builds(
    Host,
    cards=st.lists(CARDS, max_size=3).map(tuple),
    numa_nodes=st.lists(st.builds(NumaNode, st.integers(), CPUS, NUMBERS), max_size=2).map(tuple),
    cpu_siblings=st.dictionaries(st.integers(0, 999), CPUS, max_size=3),
    groups=st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=2).map(tuple),
    hostname=st.none() | WORDS,
    interfaces=st.lists(
        st.builds(Interface, WORDS, st.booleans(), st.lists(WORDS).map(tuple)), max_size=2
    ).map(tuple),
    in_container=st.none() | st.booleans(),
    notes=st.dictionaries(WORDS, WORDS, max_size=2),
)


@settings(deadline=None)
@given(HOSTS)
def test_any_host_round_trips(host: Host) -> None:
    assert through_text(host) == host


def change(path: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(snapshot.to_json(load("simulated:gaudi2e-4"))))
    place: Any = document
    *parents, last = path.split(".")
    for word in parents:
        place = place[int(word) if word.isdigit() else word]
    place[int(last) if last.isdigit() else last] = value
    return document


@pytest.mark.parametrize(
    ("document", "where", "expected", "found"),
    [
        ([], "kind", "'gaudi-launch snapshot'", "[]"),
        ({}, "kind", "'gaudi-launch snapshot'", "None"),
        (change("schema", 2), "schema", "1", "2"),
        (change("host", None), "host", "object", "null"),
        (change("host.cards", {}), "host.cards", "array", "object"),
        (change("host.cards.1.module", "3"), "host.cards[1].module", "int | null", "str"),
        (change("host.cards.0.busy", 1), "host.cards[0].busy", "bool | null", "int"),
        (change("host.cards.0.index", True), "host.cards[0].index", "int | null", "bool"),
        (change("host.cards.0.cpus", ["1"]), "host.cards[0].cpus[0]", "int", "str"),
        (change("host.cards.0.sources", {"bus": 3}), "host.cards[0].sources[...]", "str", "int"),
        (change("host.cards.0.sources", 3), "host.cards[0].sources", "object", "int"),
        (change("host.cpu_siblings", {"a": "1"}), "host.cpu_siblings", "int", "str"),
        (change("host.cpu_siblings", {"1": 1}), "host.cpu_siblings[...]", "array", "int"),
        (change("host.groups", [["0"]]), "host.groups[0][0]", "int", "str"),
        (change("host.numa_nodes", [{"cpus": ""}]), "host.numa_nodes[0].id", "a value", "missing"),
        (change("schema", "x" * 90), "schema", "1", "'" + "x" * 79),
    ],
)
def test_a_wrong_field_is_named(document: object, where: str, expected: str, found: str) -> None:
    with failing("host.snapshot_field", ExitCode.USAGE) as caught:
        snapshot.from_json(document)
    assert caught.value.text.values == {"where": where, "expected": expected, "found": found}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
_PATHS = [
    "host",
    "host.cards",
    "host.cards.0",
    "host.cards.0.holders",
    "host.numa_nodes",
    "host.cpu_siblings",
    "kind",
]


@settings(deadline=None)
@given(st.sampled_from(_PATHS), JSON)
def test_any_json(path: str, value: Any) -> None:
    try:
        snapshot.from_json(change(path, value))
    except LaunchError as error:
        assert error.exit_code == ExitCode.USAGE
