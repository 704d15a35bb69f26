"""The strongest source wins, the later of two equals wins, and what lost stays on record."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import methodcaller

import pytest

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.plan import STRENGTH, Kind, Overridden, Setting, Source

Proposal = Callable[[Decisions], object]
EXPORTED = message("plan.exported")
FLAG = message("plan.flag", flag="-l")
USUAL = message("plan.default")
FILE = "a file"
MINE = {"X": "mine"}


def option(value: str | None, source: Source = "computed", name: str = "--x") -> Proposal:
    return methodcaller("option", name, value, USUAL, source=source)


def env(value: str, source: Source = "computed", name: str = "X") -> Proposal:
    return methodcaller("env", name, value, USUAL, source=source)


def decided(
    name: str,
    value: str | None,
    source: Source = "computed",
    *beaten: tuple[str, Source],
    reason: Message = USUAL,
    origin: str = "",
) -> Setting:
    kind: Kind = "option" if name.startswith("--") else "env"
    lost = tuple(Overridden(*each) for each in beaten)
    return Setting(name, value, kind, source, reason, origin, lost)


def exported(value: str, *beaten: tuple[str, Source]) -> Setting:
    return decided("X", value, "environment", *beaten, reason=EXPORTED)


@pytest.mark.parametrize(("stronger", "weaker"), list(itertools.combinations(STRENGTH, 2)))
def test_the_strongest_option_wins_in_either_order(stronger: Source, weaker: Source) -> None:
    proposals = [option("strong", stronger), option("weak", weaker)]
    for order in (proposals, proposals[::-1]):
        assert settings_of({}, order) == (decided("--x", "strong", stronger, ("weak", weaker)),)


@pytest.mark.parametrize("source", STRENGTH)
def test_the_later_option_of_one_source_wins(source: Source) -> None:
    proposals = [option("first", source), option("second", source)]
    assert settings_of({}, proposals) == (decided("--x", "second", source, ("first", source)),)


@pytest.mark.parametrize("source", STRENGTH)
def test_an_exported_variable_is_a_source(source: Source) -> None:
    wins = STRENGTH.index("environment") < STRENGTH.index(source)
    lost: tuple[str, Source] = ("mine", "environment")
    expected = exported("mine", ("rule", source)) if wins else decided("X", "rule", source, lost)
    assert settings_of(MINE, [env("rule", source)]) == (expected,)


def settings_of(environment: Mapping[str, str], proposals: list[Proposal]) -> tuple[Setting, ...]:
    """Return the settings, which are found by kind and name, too."""
    decisions = Decisions(environment)
    for propose in proposals:
        propose(decisions)
    settings = decisions.settings()
    assert [decisions.get(each.kind, each.name) for each in settings] == [
        each.value for each in settings
    ]
    assert [*decisions.variables()] == [each for each in settings if each.kind == "env"]
    assert (decisions.get("env", "absent"), decisions.get("option", "--y")) == (None, None)
    return settings


@pytest.mark.parametrize(
    ("environment", "proposals", "settings"),
    [
        # the latest loser is listed first
        (
            {},
            [option("1", "engine"), option("2"), option("3", "flag")],
            [decided("--x", "3", "flag", ("2", "computed"), ("1", "engine"))],
        ),
        # an equal value beats nothing, and keeps what the other had beaten
        ({}, [option("1", "engine"), option("1", "flag")], [decided("--x", "1", "flag")]),
        (
            {},
            [option("1", "engine"), *(option("2", each) for each in ("computed", "flag"))],
            [decided("--x", "2", "flag", ("1", "engine"))],
        ),
        (MINE, [env("mine")], [exported("mine")]),
        # a flag without a value is not listed
        ({}, [option(None, "engine"), option("1", "flag")], [decided("--x", "1", "flag")]),
        # an empty export is none
        ({"X": ""}, [env("rule")], [decided("X", "rule")]),
        # a rule may override an export
        (
            MINE,
            [
                methodcaller("force_env", "X", "rule", USUAL),
                methodcaller("force_env", "Y", "1", USUAL, source="flag", origin=FILE),
            ],
            [
                decided("X", "rule", "computed", ("mine", "environment")),
                decided("Y", "1", "flag", origin=FILE),
            ],
        ),
        # a variable and an option of one name are two
        (
            {},
            [env("1", name="x"), option("2", name="x")],
            [decided("x", "1"), replace(decided("x", "2"), kind="option")],
        ),
        # the order is that of the first proposals
        (
            {},
            [option("1", name="--b"), option("1", name="--a"), option("1", name="--b")],
            [decided("--b", "1"), decided("--a", "1")],
        ),
        # what is dropped is gone, and another one stays
        ({}, [option("1"), methodcaller("drop", "option", "--x")], []),
        ({}, [option("1"), methodcaller("drop", "option", "--y")], [decided("--x", "1")]),
        (
            {"KEPT": "1", "EMPTY": ""},
            [
                *(env("1", name=name) for name in ("KEPT", "EMPTY", "ABSENT", "OTHER")),
                methodcaller("drop_unless_exported", "KEPT", "EMPTY", "ABSENT"),
            ],
            [replace(exported("1"), name="KEPT"), decided("OTHER", "1")],
        ),
        # a decided setting takes another reason
        (
            {},
            [
                option("1"),
                methodcaller("explain", "option", "--x", FLAG),
                methodcaller("explain", "option", "--y", FLAG),
            ],
            [decided("--x", "1", reason=FLAG)],
        ),
        # reason and origin are those of the proposal, but of an exported variable
        (
            MINE,
            [
                methodcaller("env", "X", "rule", USUAL, source="flag", origin=FILE),
                methodcaller("env", "Y", "1", USUAL),
                methodcaller("option", "--x", "1", USUAL, origin=FILE),
                methodcaller("option", "--z", None, USUAL),
            ],
            [
                decided("X", "rule", "flag", ("mine", "environment"), origin=FILE),
                decided("Y", "1"),
                decided("--x", "1", origin=FILE),
                decided("--z", None),
            ],
        ),
        (
            MINE,
            [methodcaller("env", "X", "rule", USUAL, origin=FILE)],
            [exported("mine", ("rule", "computed"))],
        ),
        # our option, our switch, and our option with a default
        (
            {},
            [
                methodcaller("option_of", "-l", "--a", 4096, origin=FILE),
                methodcaller("option_of", "-l", "--b", "8k"),
                methodcaller("option_of", "-l", "--absent", None),
                methodcaller("switch_of", "-l", "C", "true", given=True, origin=FILE),
                methodcaller("switch_of", "-l", "D", "1", given=8),
                methodcaller("switch_of", "-l", "ABSENT", "1", given=False),
                methodcaller("option_or", "--e", ("-l", 8), (16, USUAL), origin=FILE),
                methodcaller("option_or", "--f", ("-l", None), (16, USUAL), origin=FILE),
                methodcaller("option_or", "--g", ("-l", None), (0.9, USUAL)),
                methodcaller("option_or", "--h", ("-l", 0), (0.9, USUAL)),
            ],
            [
                decided("--a", "4096", "flag", reason=FLAG, origin=FILE),
                decided("--b", "8k", "flag", reason=FLAG),
                decided("C", "true", "flag", reason=FLAG, origin=FILE),
                decided("D", "1", "flag", reason=FLAG),
                decided("--e", "8", "flag", reason=FLAG, origin=FILE),
                decided("--f", "16", origin=FILE),
                decided("--g", "0.9"),
                decided("--h", "0", "flag", reason=FLAG),
            ],
        ),
    ],
)
def test_what_is_proposed_is_decided(
    environment: dict[str, str], proposals: list[Proposal], settings: list[Setting]
) -> None:
    assert settings_of(environment, proposals) == tuple(settings)


def test_warnings_are_kept_in_order_with_their_values() -> None:
    decisions = Decisions({})
    assert decisions.warnings == []
    decisions.warn("placement.large", cards=16, most=8)
    decisions.warn("placement.no_cpus")
    assert decisions.warnings == [
        message("placement.large", cards=16, most=8),
        message("placement.no_cpus"),
    ]
