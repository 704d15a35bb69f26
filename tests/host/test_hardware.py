"""The records of a machine."""

from __future__ import annotations

from gaudi_launch.host.hardware import Card, Holder, Host, Interface, NumaNode
from gaudi_launch.host.hl_smi_text import HlSmiRow, LogCard, Process, Table
from gaudi_launch.host.host_config import Disk, HostConfig, LiveAnswers
from tests.support.records import known


def test_what_was_not_read_is_none_and_not_no() -> None:
    assert known(Card(None, None)) == {"cpus": (), "holders": (), "sources": {}}
    assert known(NumaNode(0, ())) == {"id": 0, "cpus": ()}
    assert known(Holder(1)) == {"pid": 1, "command": "", "user": ""}
    assert known(Interface("a", True)) == {
        "name": "a",
        "up": True,
        "addresses": (),
        "default_route": False,
    }
    assert known(Host()) == {
        "cards": (),
        "numa_nodes": (),
        "cpu_siblings": {},
        "groups": (),
        "interfaces": (),
        "root": "/",
        "origin": "live",
        "notes": {},
        "sources": {},
    }
    assert known(Disk("/")) == {"path": "/"}
    assert known(HostConfig()) == {
        "governors": {},
        "scaling_drivers": {},
        "idle_states": {},
        "os_like": (),
        "packages": {},
        "device_nodes": {},
        "programs": {},
        "runtime_programs": (),
        "environment": {},
        "disks": {},
        "root": "/",
    }
    answers = LiveAnswers()
    assert answers.allowed("dev/accel/accel0")
    assert (answers.environment, answers.root) == ({}, "/")
    unknown: tuple[object, object] = (answers.space("tmp"), answers.find("docker"))
    assert unknown == (None, None)
    assert answers.root_user is None


def test_cards_are_found_by_module_and_free_ones_are_not_known_to_be_busy() -> None:
    cards = (
        Card(0, 7, busy=True),
        Card(1, 3, busy=None),
        Card(2, 5, busy=False),
        Card(3, None, busy=False),
    )
    host = Host(cards=cards)
    assert (host.modules, host.free_modules) == ((3, 5, 7), (3, 5))
    assert [host.card(7), host.card(4)] == [cards[0], None]
    taken = host.with_use([3, 5], busy=True)
    assert taken.free_modules == ()
    assert taken.with_use((7,), busy=False).free_modules == (7,)
    assert [card.busy for card in taken.cards] == [True, True, True, False]


def test_output_of_hl_smi_without_a_value_has_none() -> None:
    assert known(HlSmiRow(0, "HL-225")) == {"index": 0, "product": "HL-225"}
    assert known(Process(0, 7, "C", "python3")) == {
        "index": 0,
        "pid": 7,
        "kind": "C",
        "command": "python3",
    }
    assert known(Table()) == {"rows": (), "processes": ()}
    assert known(LogCard(1)) == {"index": 1, "facts": {}}
