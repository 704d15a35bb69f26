"""Which cards a deployment gets: the rules one by one, on simulated and made-up machines, and as
properties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.cpus import format_cpus, parse_cpus
from gaudi_launch.host.hardware import Card, Holder, Host
from gaudi_launch.host.machine import load
from gaudi_launch.messages import catalogue
from gaudi_launch.planning.placement import (
    choose,
    holders,
    parse_modules,
)
from tests.support.refusals import failing


@pytest.mark.parametrize(
    ("machine", "cards", "modules", "visible", "id", "code"),
    [
        ("hls2", 0, None, None, "plan.number", ExitCode.USAGE),
        ("hls2", -4, None, None, "plan.number", ExitCode.USAGE),
        ("hls2", 9, None, None, "placement.too_many", ExitCode.MACHINE),
        ("hls2+busy=3,5,7", 8, None, None, "placement.too_few", ExitCode.MACHINE),
        ("hls2", 2, (0, 1, 2), None, "placement.count_differs", ExitCode.USAGE),
        ("hls2", 2, (1, 1), None, "placement.doubled", ExitCode.USAGE),
        ("hls2", 2, (3, 8), None, "placement.unknown_modules", ExitCode.MACHINE),
        ("hls2+busy=3", 2, (3, 4), None, "placement.busy_modules", ExitCode.MACHINE),
        ("hls2", 4, None, (0, 1), "placement.too_few_visible", ExitCode.MACHINE),
        ("hls2+busy=3,5,7", 2, None, (0, 5), "placement.too_few", ExitCode.MACHINE),
        ("hls2", 1, None, (11,), "placement.too_few_visible", ExitCode.MACHINE),
        ("hls2+busy=0,1,2,3,4,5,6,7", 1, None, None, "placement.none_free", ExitCode.MACHINE),
        ("gaudi2e-8+busy=0,5", 4, None, None, "placement.crosses_group", ExitCode.MACHINE),
        (
            "gaudi3-pcie+busy=0,1,2,5,6,7",
            2,
            None,
            None,
            "placement.crosses_group",
            ExitCode.MACHINE,
        ),
        ("hls2+no-driver", 1, None, None, "placement.no_cards_of", ExitCode.MACHINE),
    ],
)
def test_refusal(
    machine: str,
    cards: int,
    modules: tuple[int, ...] | None,
    visible: tuple[int, ...] | None,
    id: str,
    code: ExitCode,
) -> None:
    with failing(id, code) as caught:
        choose(load(f"simulated:{machine}"), cards, modules, visible)
    assert "{" not in str(caught.value)


def test_too_few_names_who_holds_what() -> None:
    with pytest.raises(LaunchError) as caught:
        choose(load("simulated:hls2+busy=3+failed=5"), 8)
    holders = caught.value.text.values["holders"]
    assert (
        holders
        == "3: python3 -m vllm.entrypoints.openai.api_server (pid 4103, ann); 5: status Disabled"
    )


def test_modules_cannot_be_guessed_from_indices() -> None:
    with failing("placement.no_modules", ExitCode.MACHINE):
        choose(Host(cards=(Card(index=0, module=None),)), 1)


def warnings(
    machine: str, modules: tuple[int, ...], visible: tuple[int, ...] | None = None
) -> list[str]:
    placement = choose(load(f"simulated:{machine}"), len(modules), modules, visible)
    assert placement.modules == modules
    return [warning.id for warning in placement.warnings]


def test_the_users_own_modules() -> None:
    assert warnings("hls2", (3, 2)) == []
    assert warnings("hls2", (1, 2)) == ["placement.not_documented"]
    assert warnings("hls2", (4, 0)) == ["placement.not_documented", "placement.nodes"]
    assert warnings("gaudi2e-8", (0, 5)) == ["placement.crossing_asked", "placement.nodes"]
    assert warnings("hls2", (0, 1, 2)) == ["placement.unusual_count"]
    assert warnings("hls2", (0, 1), visible=(4, 5)) == ["placement.outside_visible"]
    assert warnings("gaudi3-pcie", tuple(range(8))) == ["placement.crossing"]


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


def test_no_cpus_is_said() -> None:
    placement = choose(box([None], [""]), 1)
    assert (placement.cpus, [w.id for w in placement.warnings]) == ((), ["placement.no_cpus"])


def test_very_many_modules_end_in_time() -> None:
    host = box([0] * 64, ["0-63"] * 64, busy=(1,))
    assert choose(host, 8).modules == tuple(range(8, 16))
    assert len(choose(host, 30).modules) == 30


NAMES = ["hls2", "gaudi2e-8", "gaudi2e-4", "gaudi3-oam", "gaudi3-pcie"]


@settings(deadline=None, max_examples=150)
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


def test_every_sentence_is_there_in_both_languages() -> None:
    english, chinese = catalogue("en"), catalogue("zh")
    mine = {id for id in english if id.startswith(("placement.", "host."))}
    assert len(mine) > 50
    assert mine == {id for id in chinese if id.startswith(("placement.", "host."))}
    for id in mine:
        assert set(_placeholders(english[id])) == set(_placeholders(chinese[id])), id


def _placeholders(template: str) -> list[str]:
    import string

    return [name for _, name, _, _ in string.Formatter().parse(template) if name]


@pytest.mark.parametrize(
    ("card", "shown"),
    [
        (Card(0, 0, holders=(Holder(12, "vllm", "ann"),)), "0: vllm (pid 12, ann)"),
        (Card(0, 0, holders=(Holder(12), Holder(13, "sh"))), "0: ? (pid 12); 0: sh (pid 13)"),
        (
            Card(0, 0, holders=tuple(Holder(n) for n in range(4))),
            "0: ? (pid 0, 1, 2)",
        ),
        (Card(0, 0, busy_because="memory", memory_used_mib=700), "0: memory 700 MiB"),
        (Card(0, 0, busy_because="memory"), "0: memory"),
        (Card(0, 0, busy_because="reserved", memory_used_mib=700, status="Up"), "0: reserved"),
        (Card(0, 0, busy_because="status"), "0: status"),
        (Card(0, 0), "0: ?"),
    ],
)
def test_what_uses_a_card_is_shown_by_process_memory_or_status(card: Card, shown: str) -> None:
    assert holders(Host(cards=(card,)), (0,)) == shown


def test_a_module_that_is_not_there_has_no_holder() -> None:
    host = Host(cards=(Card(0, 0, busy_because="reserved"),))
    assert holders(host, (9, 0)) == "0: reserved"
    assert holders(host, ()) == "-"
