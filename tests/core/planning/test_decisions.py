"""The strongest source wins, the later of two equals wins, and what lost stays on record."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.plan import STRENGTH, Overridden, Setting, Source

WHY = message("plan.exported")


def decided(environment: Mapping[str, str] | None = None) -> Decisions:
    return Decisions(environment or {})


def only(decisions: Decisions) -> Setting:
    (setting,) = decisions.settings()
    return setting


@pytest.mark.parametrize(("stronger", "weaker"), list(itertools.combinations(STRENGTH, 2)))
def test_the_strongest_option_wins_in_either_order(stronger: Source, weaker: Source) -> None:
    proposals: list[tuple[str, Source]] = [("strong", stronger), ("weak", weaker)]
    for order in (proposals, proposals[::-1]):
        decisions = decided()
        for value, source in order:
            decisions.option("--x", value, WHY, source=source)
        assert (only(decisions).value, only(decisions).source) == ("strong", stronger)
        assert only(decisions).beaten == (Overridden("weak", weaker),)


@pytest.mark.parametrize("source", STRENGTH)
def test_the_later_option_of_one_source_wins(source: Source) -> None:
    decisions = decided()
    decisions.option("--x", "first", WHY, source=source)
    decisions.option("--x", "second", WHY, source=source)
    assert only(decisions).value == "second"
    assert only(decisions).beaten == (Overridden("first", source),)


def test_the_latest_loser_is_listed_first() -> None:
    decisions = decided()
    for value, source in (("1", "engine"), ("2", "computed"), ("3", "flag")):
        decisions.option("--x", value, WHY, source=source)  # type: ignore[arg-type]
    assert only(decisions).beaten == (Overridden("2", "computed"), Overridden("1", "engine"))


def test_an_equal_value_beats_nothing() -> None:
    decisions = decided()
    decisions.option("--x", "1", WHY, source="engine")
    decisions.option("--x", "1", WHY, source="flag")
    assert (only(decisions).source, only(decisions).beaten) == ("flag", ())


def test_a_flag_without_a_value_is_not_listed_as_beaten() -> None:
    decisions = decided()
    decisions.option("--x", None, WHY, source="engine")
    decisions.option("--x", "1", WHY, source="flag")
    assert (only(decisions).value, only(decisions).beaten) == ("1", ())


@pytest.mark.parametrize("source", ["profile", "computed", "engine"])
def test_what_the_user_exported_beats_a_weaker_source(source: Source) -> None:
    decisions = decided({"X": "mine"})
    decisions.env("X", "rule", WHY, source=source)
    assert (only(decisions).value, only(decisions).source) == ("mine", "environment")
    assert only(decisions).beaten == (Overridden("rule", source),)


@pytest.mark.parametrize("source", ["flag", "environment"])
def test_what_the_user_exported_does_not_beat_its_equal_or_stronger(source: Source) -> None:
    decisions = decided({"X": "mine"})
    decisions.env("X", "other", WHY, source=source)
    assert (only(decisions).value, only(decisions).source) == ("other", source)
    assert only(decisions).beaten == (Overridden("mine", "environment"),)


def test_a_rule_may_override_an_export() -> None:
    decisions = decided({"X": "mine"})
    decisions.force_env("X", "rule", WHY)
    assert (only(decisions).value, only(decisions).source) == ("rule", "computed")
    assert only(decisions).beaten == (Overridden("mine", "environment"),)


def test_an_empty_export_counts_as_none() -> None:
    decisions = decided({"X": ""})
    decisions.env("X", "rule", WHY)
    assert (only(decisions).value, only(decisions).beaten) == ("rule", ())


def test_a_variable_and_an_option_of_one_name_are_two_settings() -> None:
    decisions = decided()
    decisions.env("x", "1", WHY)
    decisions.option("x", "2", WHY)
    assert [(each.kind, each.value) for each in decisions.settings()] == [
        ("env", "1"),
        ("option", "2"),
    ]


def test_the_order_is_that_of_the_first_proposals() -> None:
    decisions = decided()
    for name in ("--b", "--a", "--b"):
        decisions.option(name, "1", WHY)
    assert [setting.name for setting in decisions.settings()] == ["--b", "--a"]


def test_a_dropped_proposal_is_gone() -> None:
    decisions = decided()
    decisions.option("--x", "1", WHY)
    decisions.drop("option", "--x")
    assert decisions.settings() == ()
    assert decisions.get("option", "--x") is None


def test_a_decided_setting_takes_another_reason() -> None:
    decisions = decided()
    decisions.option("--x", "1", WHY)
    other = message("quant.kv_dtype")
    decisions.explain("option", "--x", other)
    decisions.explain("option", "--y", other)
    assert only(decisions).reason == other


def test_a_variable_of_a_rule_keeps_its_reason_and_its_origin() -> None:
    decisions = decided({"X": "mine"})
    decisions.env("X", "rule", WHY, source="flag", origin="a file")
    decisions.env("Y", "1", WHY)
    beaten = (Overridden("mine", "environment"),)
    assert decisions.settings() == (
        Setting("X", "rule", "env", "flag", WHY, "a file", beaten),
        Setting("Y", "1", "env", "computed", WHY, "", ()),
    )


def test_an_exported_variable_has_its_own_reason_and_no_origin() -> None:
    decisions = decided({"X": "mine"})
    decisions.env("X", "rule", message("quant.kv_dtype"), origin="a file")
    beaten = (Overridden("rule", "computed"),)
    exported = Setting("X", "mine", "env", "environment", message("plan.exported"), "", beaten)
    assert only(decisions) == exported


def test_an_export_of_the_same_value_beats_nothing() -> None:
    decisions = decided({"X": "1"})
    decisions.env("X", "1", WHY)
    assert only(decisions) == Setting("X", "1", "env", "environment", WHY, "", ())


def test_an_option_keeps_its_reason_and_its_origin() -> None:
    decisions = decided()
    decisions.option("--x", "1", WHY, origin="a file")
    decisions.option("--y", None, WHY)
    assert decisions.settings() == (
        Setting("--x", "1", "option", "computed", WHY, "a file", ()),
        Setting("--y", None, "option", "computed", WHY, "", ()),
    )


def test_an_equal_value_keeps_what_the_other_had_beaten() -> None:
    decisions = decided()
    decisions.option("--x", "1", WHY, source="engine")
    decisions.option("--x", "2", WHY, source="computed")
    decisions.option("--x", "2", WHY, source="flag")
    decisions.option("--x", "2", WHY, source="profile")
    assert only(decisions).beaten == (Overridden("1", "engine"),)


def test_the_decided_value_is_returned_by_kind_and_name() -> None:
    decisions = decided()
    decisions.env("x", "1", WHY)
    decisions.option("x", "2", WHY)
    assert (decisions.get("env", "x"), decisions.get("option", "x")) == ("1", "2")
    assert decisions.get("env", "y") is None


def test_a_drop_of_what_nothing_proposed_changes_nothing() -> None:
    decisions = decided()
    decisions.option("--x", "1", WHY)
    decisions.drop("option", "--y")
    assert only(decisions).name == "--x"


def test_warnings_are_kept_in_order_with_their_values() -> None:
    decisions = decided()
    assert decisions.warnings == []
    decisions.warn("placement.large", cards=16, most=8)
    decisions.warn("placement.no_cpus")
    assert decisions.warnings == [
        message("placement.large", cards=16, most=8),
        message("placement.no_cpus"),
    ]


def test_an_exported_value_is_the_decided_one() -> None:
    decisions = decided({"X": "mine"})
    decisions.env("X", "rule", WHY)
    assert decisions.get("env", "X") == "mine"


def test_a_forced_variable_keeps_its_reason_and_names_what_it_beat() -> None:
    decisions = decided({"X": "mine"})
    decisions.force_env("X", "rule", WHY)
    decisions.force_env("Y", "1", WHY, source="flag", origin="a file")
    assert decisions.settings() == (
        Setting("X", "rule", "env", "computed", WHY, "", (Overridden("mine", "environment"),)),
        Setting("Y", "1", "env", "flag", WHY, "a file", ()),
    )


FLAG = message("plan.flag", flag="-l")
USUAL = message("plan.default")


def test_our_option_proposes_its_value_as_the_users() -> None:
    decisions = Decisions({})
    decisions.option_of("-l", "--max-model-len", 4096, origin="the script")
    decisions.option_of("-l", "--plain", "8k")
    decisions.option_of("-l", "--absent", None)
    assert decisions.settings() == (
        Setting("--max-model-len", "4096", "option", "flag", FLAG, "the script"),
        Setting("--plain", "8k", "option", "flag", FLAG, ""),
    )


def test_our_switch_proposes_its_variable_where_it_is_given() -> None:
    decisions = Decisions({})
    decisions.switch_of("-l", "VLLM_SKIP_WARMUP", "true", given=True, origin="the script")
    decisions.switch_of("-l", "PLAIN", "1", given=8)
    decisions.switch_of("-l", "ABSENT", "1", given=False)
    assert decisions.settings() == (
        Setting("VLLM_SKIP_WARMUP", "true", "env", "flag", FLAG, "the script"),
        Setting("PLAIN", "1", "env", "flag", FLAG, ""),
    )


def test_a_default_is_proposed_where_our_option_is_not_given() -> None:
    decisions = Decisions({})
    decisions.option_or("--given", ("-l", 8), (16, USUAL), origin="the script")
    decisions.option_or("--usual", ("-l", None), (16, USUAL), origin="the script")
    decisions.option_or("--plain", ("-l", None), (0.9, USUAL))
    decisions.option_or("--flag", ("-l", 0), (0.9, USUAL))
    assert decisions.settings() == (
        Setting("--given", "8", "option", "flag", FLAG, "the script"),
        Setting("--usual", "16", "option", "computed", USUAL, "the script"),
        Setting("--plain", "0.9", "option", "computed", USUAL, ""),
        Setting("--flag", "0", "option", "flag", FLAG, ""),
    )


def test_variables_are_dropped_unless_exported() -> None:
    decisions = Decisions({"KEPT": "1", "EMPTY": ""})
    for name in ("KEPT", "EMPTY", "ABSENT", "OTHER"):
        decisions.env(name, "2", USUAL)
    decisions.drop_unless_exported("KEPT", "EMPTY", "ABSENT")
    assert [setting.name for setting in decisions.settings()] == ["KEPT", "OTHER"]


def test_variables_are_the_settings_of_that_kind() -> None:
    decisions = Decisions({})
    decisions.env("VARIABLE", "1", USUAL)
    decisions.option("--option", "1", USUAL)
    assert [setting.name for setting in decisions.variables()] == ["VARIABLE"]
