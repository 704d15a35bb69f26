"""Which cards a deployment gets: the rules one by one, on simulated and made-up machines, and as
properties."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.locks import Holder
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.host.cpus import format_cpus, parse_cpus
from gaudi_launch.core.host.hardware import Card, Host, NumaNode
from gaudi_launch.core.host.machine import load
from gaudi_launch.core.planning.parse import parse_modules
from gaudi_launch.core.planning.placement import (
    Placement,
    choose,
    documented_sets,
    holders,
    parse_visible,
    share_cpus,
    spans_groups,
)
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.requested_cards import choose_for
from tests.support.cli import golden
from tests.support.every_case import examples
from tests.support.machines import make_recorded, recorded_hosts, use
from tests.support.places import DATA
from tests.support.refusals import failing
from tests.support.whole_plans import shown


def picked(machine: str, cards: int, visible: tuple[int, ...] | None = None) -> tuple[int, ...]:
    return choose(load(f"simulated:{machine}"), cards, None, visible).modules


@pytest.mark.parametrize(
    ("machine", "cards", "modules"),
    [
        ("hls2", 1, (0,)),
        ("hls2", 2, (0, 1)),
        ("hls2", 4, (0, 1, 2, 3)),
        ("hls2", 8, tuple(range(8))),
        # a documented set before any other
        ("hls2+busy=0", 2, (2, 3)),
        ("hls2+busy=0,1", 4, (4, 5, 6, 7)),
        # one card out of a broken pair, so that whole pairs and fours stay
        ("hls2+busy=3", 1, (2,)),
        ("hls2+busy=2,3,7", 1, (6,)),
        ("hls2+busy=0,1,2", 1, (3,)),
        # a pair out of the broken four
        ("hls2+busy=6", 2, (4, 5)),
        ("hls2+busy=2,3", 2, (0, 1)),
        # no documented pair is free in a node: still within one node
        ("hls2+busy=0,2,5,6,7", 2, (1, 3)),
        # nothing else is left
        ("hls2+busy=3,5,7", 4, (0, 1, 2, 4)),
        ("gaudi2e-8+busy=1", 4, (4, 5, 6, 7)),
        ("gaudi2e-8", 8, tuple(range(8))),
        ("gaudi2e-4", 4, (0, 1, 2, 3)),
        ("gaudi2e-4+busy=0", 2, (2, 3)),
        ("gaudi3-pcie+failed=4", 2, (6, 7)),
        ("gaudi3-oam+busy=0,1,2,3,4", 2, (6, 7)),
    ],
)
def test_choice(machine: str, cards: int, modules: tuple[int, ...]) -> None:
    assert picked(machine, cards) == modules


def test_visible_limits_the_choice() -> None:
    assert picked("hls2", 2, (3, 5, 4)) == (4, 5)
    assert picked("hls2", 2, (3, 6, 7, 9)) == (6, 7)


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        (None, None),
        ("", None),
        (" all ", None),
        ("ALL", None),
        ("0", (0,)),
        (" 3, 1 ,2", (3, 1, 2)),
    ],
)
def test_visible(text: str | None, modules: tuple[int, ...] | None) -> None:
    assert parse_visible(text) == modules


@pytest.mark.parametrize("text", ["a,b", "0,,1", "-1", "0-3", "1,1", "٣", "99999", "all,1"])
def test_visible_nonsense(text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        parse_visible(text)
    assert caught.value.exit_code == ExitCode.USAGE


def test_cpus_are_whole_cores_shared_by_all_cards_of_a_node() -> None:
    placement = choose(load("simulated:hls2+busy=1"), 2)
    assert placement.modules == (2, 3)
    assert {m: format_cpus(cpus) for m, cpus in placement.cpus_by_module.items()} == {
        2: "20-29,100-109",
        3: "30-39,110-119",
    }
    assert format_cpus(placement.cpus) == "20-39,100-119"
    assert (placement.numa_nodes, placement.memory_node) == ((0,), 0)


def test_cpus_without_smt() -> None:
    placement = choose(load("simulated:hls2+no-smt"), 4)
    assert format_cpus(placement.cpus) == "0-39"
    assert format_cpus(placement.cpus_by_module[1]) == "10-19"


def box(numa: list[int | None], cpus: list[str], busy: tuple[int, ...] = ()) -> Host:
    """A machine of one group whose modules have these NUMA nodes and CPUs."""
    cards = tuple(
        Card(index=m, module=m, numa_node=node, cpus=parse_cpus(cpus[m]), busy=m in busy)
        for m, node in enumerate(numa)
    )
    return Host(cards=cards, groups=(tuple(range(len(numa))),), product="gaudi2")


def test_one_numa_node_before_a_documented_set() -> None:
    host = box([0, 1, 0, 1], ["0-3", "4-7", "0-3", "4-7"])
    assert choose(host, 2).modules == (0, 2)


def test_cards_that_see_every_cpu_share_them() -> None:
    """A virtual machine tells no NUMA node and gives every card every CPU."""
    host = box([None] * 4, ["0-7"] * 4)
    assert share_cpus(host) == {0: (0, 1), 1: (2, 3), 2: (4, 5), 3: (6, 7)}
    assert choose(host, 2).memory_node is None


def test_lists_that_touch_are_one_pool() -> None:
    host = box([0, 0, 1], ["0-3", "2-5", "8-9"])
    assert share_cpus(host) == {0: (0, 1, 2), 1: (3, 4, 5), 2: (8, 9)}


def test_fewer_cores_than_cards() -> None:
    assert share_cpus(box([0] * 3, ["0-1"] * 3)) == {0: (0,), 1: (0,), 2: (1,)}
    four = share_cpus(box([0] * 4, ["0-1"] * 4))
    assert four == {0: (0,), 1: (0,), 2: (1,), 3: (1,)}


def test_cpus_of_the_node_when_the_card_has_none() -> None:
    host = replace(box([0, 0], ["", ""]), numa_nodes=(NumaNode(0, (0, 1, 2, 3)),))
    assert share_cpus(host) == {0: (0, 1), 1: (2, 3)}


def test_cpus_that_are_switched_off_are_not_used() -> None:
    host = replace(box([0, 0], ["0-7", "0-7"]), cpu_siblings={cpu: (cpu,) for cpu in (0, 1, 6, 7)})
    assert share_cpus(host) == {0: (0, 1), 1: (6, 7)}


def test_no_cpus_is_said() -> None:
    placement = choose(box([None], [""]), 1)
    assert (placement.cpus, [w.id for w in placement.warnings]) == ((), ["placement.no_cpus"])


def test_sixteen_modules() -> None:
    host = box(
        [m // 8 for m in range(16)],
        [f"{m // 8 * 8}-{m // 8 * 8 + 7}" for m in range(16)],
        busy=(0,),
    )
    assert choose(host, 4).modules == (4, 5, 6, 7)
    assert choose(host, 8).modules == tuple(range(8, 16))
    assert [w.id for w in choose(host, 10).warnings] == [
        "placement.unusual_count",
        "placement.large",
        "placement.nodes",
    ]


def test_very_many_modules_end_in_time() -> None:
    host = box([0] * 64, ["0-63"] * 64, busy=(1,))
    assert choose(host, 8).modules == tuple(range(8, 16))
    assert len(choose(host, 30).modules) == 30


def test_documented_sets() -> None:
    assert documented_sets(2, range(8)) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert documented_sets(4, range(8)) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert documented_sets(4, (1, 2, 3, 4)) == ()
    assert documented_sets(3, range(8)) == ()
    assert documented_sets(2, ()) == ()


NAMES = ["hls2", "gaudi2e-8", "gaudi2e-4", "gaudi3-oam", "gaudi3-pcie"]


@settings(deadline=None, max_examples=examples(60, 150))
@given(
    st.sampled_from(NAMES),
    st.sets(st.integers(0, 7)),
    st.integers(1, 9),
    st.none() | st.sets(st.integers(0, 9)),
)
def test_any_choice_keeps_the_rules(
    name: str, busy: set[int], cards: int, visible: set[int] | None
) -> None:
    host = load(f"simulated:{name}")
    host = replace(
        host, cards=tuple(replace(card, busy=card.module in busy) for card in host.cards)
    )
    try:
        placement = choose(host, cards, None, tuple(visible) if visible is not None else None)
    except LaunchError as error:
        assert error.exit_code == ExitCode.MACHINE
        return
    chosen = placement.modules
    assert len(chosen) == cards
    assert list(chosen) == sorted(set(chosen))
    assert set(chosen) <= set(host.free_modules)
    assert visible is None or set(chosen) <= visible
    if len(host.groups) > 1 and cards in (2, 4):
        assert any(set(chosen) <= set(group) for group in host.groups)
    assert set(placement.cpus_by_module) == set(chosen)
    # another launch on the cards that are left never gets the same CPUs
    rest = replace(
        host, cards=tuple(replace(c, busy=c.busy or c.module in chosen) for c in host.cards)
    )
    if rest.free_modules:
        assert not set(choose(rest, 1).cpus) & set(placement.cpus)


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_module_text(text: str) -> None:
    try:
        modules = parse_modules(text)
    except LaunchError as error:
        assert error.exit_code == ExitCode.USAGE
    else:
        assert modules == tuple(int(word) for word in text.split(","))


REFERENCE = json.loads((DATA / "reference_cpus.json").read_text())


@pytest.mark.parametrize(("server", "modules", "cores", "node"), REFERENCE)
def test_the_cores_are_those_of_the_start_scripts_and_their_siblings(
    server: str,
    modules: str,
    cores: str,
    node: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`numactl -C CORES -p NODE` as the public scripts called it; they leave the second thread
    of a core idle."""
    recorded = recorded_hosts()[server]
    use(monkeypatch, tmp_path, make_recorded({**recorded, "used": []}, tmp_path))
    host = load()
    placement = choose(host, None, parse_modules(modules))
    siblings = {cpu for core in parse_cpus(cores) for cpu in host.cpu_siblings[core]}
    assert set(placement.cpus) == siblings
    # the scripts lose the node of a machine without SMT and leave `-p` bare
    assert node in ("", str(placement.memory_node))


def refused(host: Host) -> tuple[str, ExitCode, dict[str, object]]:
    with pytest.raises(LaunchError) as caught:
        choose(host, 1)
    return caught.value.id, caught.value.exit_code, dict(caught.value.text.values)


def test_a_machine_without_cards_gives_its_notes() -> None:
    notes = {"hl-smi": "not on PATH", "driver": "none"}
    why = "hl-smi: not on PATH; driver: none"
    assert refused(Host(notes=notes)) == ("placement.no_cards", ExitCode.MACHINE, {"why": why})
    assert refused(Host(origin="a.json")) == (
        "placement.no_cards_of",
        ExitCode.MACHINE,
        {"machine": "a.json", "why": "-"},
    )
    nameless = Host(cards=(Card(index=0, module=None),), notes=notes)
    assert refused(nameless) == ("placement.no_modules", ExitCode.MACHINE, {"cards": 1, "why": why})


@pytest.mark.parametrize("name", ["HABANA_VISIBLE_MODULES", "-m"])
def test_a_refused_list_is_named_with_its_variable_or_option(name: str) -> None:
    read = parse_visible if name != "-m" else parse_modules
    for text, id in (("0-3", "placement.bad_modules"), ("1,1", "placement.doubled")):
        with failing(id, ExitCode.USAGE) as caught:
            read(text)
        assert {"name": name, "found": text}.items() <= caught.value.text.values.items()
    assert read("1234,0") == (1234, 0)


def test_of_the_sets_that_stay_free_four_are_named() -> None:
    host = box([0] * 16, ["0-15"] * 16)
    assert choose(host, 1).reasons == (
        message("placement.chosen", modules="0", free=",".join(map(str, range(16)))),
        message("placement.leaves", sets="4,5,6,7; 8,9,10,11; 12,13,14,15; 2,3"),
        message("placement.cpus", cpus="0"),
    )


def test_cards_of_two_nodes_or_two_groups_are_not_called_near() -> None:
    across_nodes = replace(box([0, 1, 0], ["0", "1", "2"], busy=(2,)), groups=((0, 1, 2),))
    both = [reason.id for reason in choose(across_nodes, 2).reasons]
    assert both == ["placement.all_free", "placement.cpus"]
    across_groups = replace(box([0] * 4, ["0-3"] * 4), groups=((0, 1), (2, 3)))
    three = [reason.id for reason in choose(across_groups, 3).reasons]
    assert three == ["placement.chosen", "placement.cpus"]
    two_nodes = box([0, 1, 2], ["0", "1", "2"])
    assert [reason.id for reason in choose(two_nodes, 2).reasons] == [
        "placement.chosen",
        "placement.documented",
        "placement.cpus",
    ]


def test_a_card_whose_use_is_unknown_and_a_large_job_are_warned_about() -> None:
    host = box([0] * 10, ["0-9"] * 10)
    cards = tuple(replace(card, busy=None if card.module == 4 else False) for card in host.cards)
    assert choose(replace(host, cards=cards), 9, tuple(range(9))).warnings == (
        message("placement.unusual_count", cards=9),
        message("placement.large", cards=9, most=8),
        message("placement.not_sure", modules="4"),
    )


def test_a_card_without_cpus_takes_none_from_the_others() -> None:
    assert share_cpus(box([None, 0], ["", "0-1"])) == {1: (0, 1)}


def test_neighbours_are_compared_where_all_sets_would_be_too_many() -> None:
    host = box([0] * 32, ["0-31"] * 32, busy=tuple(range(16)))
    # 12870 sets of 8 among 16 are compared, 24310 among 17 are not
    assert choose(host, 8).modules == tuple(range(16, 24))
    last = box([*(m % 2 for m in range(60)), 0, 0, 0, 0], ["0-63"] * 64)
    assert choose(last, 4).modules == (60, 61, 62, 63)


def test_reference_tuning_refuses_a_visible_list_with_a_busy_card() -> None:
    host = load("simulated:hls2+busy=3")
    request = Request("m", environment={"HABANA_VISIBLE_MODULES": "2,3,4"}, tuning="reference")
    with failing("plan.visible_busy", ExitCode.MACHINE) as caught:
        choose_for(request, host, 1)
    assert caught.value.text.values == {"found": "2,3,4", "busy": "3"}
    # automatic tuning takes a free one of them; -m is the user's own choice
    assert choose_for(replace(request, tuning="auto"), host, 2) == choose(host, 2, None, (2, 3, 4))
    named = replace(request, modules=(4, 2))
    assert choose_for(named, host, 2) == choose(host, 2, (4, 2), (2, 3, 4))
    free = replace(request, environment={"HABANA_VISIBLE_MODULES": "2,4"})
    assert choose_for(free, host, None).modules == (2,)
    unset = replace(request, environment={})
    assert choose_for(unset, host, 2) == choose(host, 2)


def test_only_cards_of_several_link_groups_span_groups() -> None:
    host = load("simulated:gaudi2e-8")
    assert spans_groups(host, (3, 4))
    assert not spans_groups(host, (0, 1, 2, 3))


def stated(made: Placement) -> list[str]:
    """Return everything that a placement states, in order."""
    return [
        f"{made.modules} node {made.memory_node} of {made.numa_nodes}",
        f"cpus {format_cpus(made.cpus)}",
        *(f"reason {shown(each)}" for each in made.reasons),
        *(f"warning {shown(each)}" for each in made.warnings),
    ]


# machine, number of cards, modules, visible modules
STATED: list[tuple[str, int | None, tuple[int, ...] | None, tuple[int, ...] | None]] = [
    ("hls2", 1, None, None),
    ("hls2", 2, None, None),
    ("hls2", 3, None, None),
    ("hls2", 4, None, None),
    ("hls2", 8, None, None),
    ("hls2", None, (2, 5), None),
    ("hls2", None, (1, 2), None),
    ("hls2", None, (1, 2), (0, 1)),
    ("hls2", None, (0, 1), ()),
    ("hls2", None, (3, 2), None),
    ("hls2", None, (4, 0), None),
    ("hls2", None, (0, 1, 2), None),
    ("hls2", None, (2, 3, 4, 5), None),
    ("hls2", 2, None, (1, 2, 6)),
    ("hls2", 2, None, (6, 7)),
    ("hls2", 2, None, (5, 4)),
    ("hls2+busy=0,3", 2, None, None),
    ("hls2+busy=0,3", 4, None, None),
    ("gaudi2e-8", 4, None, None),
    ("gaudi2e-8", 6, None, None),
    ("gaudi2e-8", None, (3, 4), None),
    ("gaudi2e-8", None, (2, 3, 4), None),
    ("gaudi2e-8", None, (2, 3, 4, 5), None),
    ("gaudi3-pcie", None, tuple(range(8)), None),
    # refused
    ("hls2+no-hl-smi", 2, None, None),
    ("hls2+no-driver", 1, None, None),
    ("hls2", 0, None, None),
    ("hls2", -4, None, None),
    ("hls2", 9, None, None),
    ("hls2", None, (), None),
    ("hls2", 2, (0, 1, 2), None),
    ("hls2", 2, (1, 1), None),
    ("hls2", 2, (3, 8), None),
    ("hls2", 4, None, (0, 1)),
    ("hls2", 1, None, (11,)),
    ("hls2+failed=3", 2, (3, 4), None),
    ("hls2+busy=3+failed=5", 8, None, None),
    ("hls2+busy=3,5,7", 2, None, (0, 5)),
    ("hls2+busy=0,1,2,3,4,5,6,7", 1, None, None),
    ("gaudi2e-8+failed=0,5", 4, None, None),
    ("gaudi3-pcie+busy=0,1,2,5,6,7", 2, None, None),
]


def test_each_choice_states_its_reasons_and_warnings_or_its_refusal() -> None:
    lines: list[str] = []
    for machine, cards, modules, visible in STATED:
        lines.append(f"== {machine} cards {cards} modules {modules} visible {visible}")
        try:
            made = choose(load(f"simulated:{machine}"), cards, modules, visible)
        except LaunchError as error:
            lines.append(f"refused ({error.exit_code.name}): {shown(error.text)}")
        else:
            lines += stated(made)
    golden("planning/placement.txt", "\n".join(lines) + "\n")


def test_whoever_has_a_card_is_named_with_the_sign_of_it() -> None:
    people = tuple(
        Holder(pid, "vllm" if pid else "", "ann" if pid == 1 else "") for pid in range(5)
    )
    cards = (
        Card(0, 0, "HL-225", busy=True, holders=people[1:]),
        Card(1, 1, "HL-225", busy=True, holders=people[:1]),
        Card(2, 2, "HL-225", busy=True, busy_because="memory", memory_used_mib=700),
        Card(3, 3, "HL-225", busy=True, busy_because="memory"),
        Card(4, 4, "HL-225", busy=True, busy_because="status", status="reset"),
        Card(5, 5, "HL-225", busy=True, busy_because="reserved", status="reset"),
        Card(6, 6, "HL-225", busy=True),
    )
    host = Host(cards=cards)
    assert holders(host, [*range(7), 9]) == (
        "0: vllm (pid 1, ann); 0: vllm (pid 2, 3); 1: ? (pid 0); 2: memory 700 MiB; "
        "3: memory; 4: status reset; 5: reserved; 6: ?"
    )
    assert holders(host, []) == "-"
