"""The engine's argument list: read as the engine reads it, written so that the user's part wins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.planning.engine_args import (
    EngineArgs,
    engine_args,
    split_argv,
)
from gaudi_launch.planning.option_table import UPSTREAM, EngineOption, OptionTable, option_table
from tests.support import options_table
from tests.support.cli import reading

TABLES = {
    "1.21": "vllm-fork-1.21",
    "1.22": "vllm-fork-1.22",
    "deepseek_r1": "vllm-fork-deepseek_r1",
    "vllm-upstream-0.32.0": UPSTREAM,
}


def user(*words: str, table: str = "vllm-fork-1.22") -> EngineArgs:
    return engine_args(table=option_table(table), user=words)


def test_every_address_of_a_container_changes() -> None:
    made = split_argv(("vllm", "serve", "/m", "--host", "a", "--host=b"))
    assert made.with_values("--host", "0.0.0.0").to_argv() == (
        "vllm", "serve", "/m", "--host", "0.0.0.0", "--host=0.0.0.0",
    )  # fmt: skip


def arguments(option: EngineOption) -> st.SearchStrategy[tuple[str, ...]]:
    """One use of an option, in a drawn spelling, with as many values as it takes."""
    value = st.sampled_from(("1", "-1", "x", "-0.5", "a=b", "a b", "0", "value_with_underscore"))
    spellings = [option.name, *option.aliases]
    name = st.sampled_from(
        [*spellings, option.name[:2] + option.name[2:].replace("-", "_"), *option.off]
    )
    if option.count == "0":
        return st.tuples(name)
    spelled = st.sampled_from([*spellings, option.name[:2] + option.name[2:].replace("-", "_")])
    attached = st.builds(lambda n, v: (f"{n}={v}",), st.just(option.name), value)
    if option.count == "1":
        return st.one_of(st.tuples(spelled, value), attached)
    least = 0 if option.count == "?" else 1
    most = 1 if option.count == "?" else 3
    several = st.lists(value, min_size=least, max_size=most)
    return st.one_of(st.builds(lambda n, v: (n, *v), spelled, several), attached)


@pytest.mark.parametrize("version", TABLES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_it_reads_what_the_engines_own_parser_reads(version: str, data: st.DataObject) -> None:
    """Against argparse, made of the engine's recorded options; values are taken as texts."""
    table = option_table(TABLES[version])
    options = [option for option in table.options if option.name not in ("--help", "--config")]
    drawn = data.draw(st.lists(st.sampled_from(options).flatmap(arguments), max_size=5))
    words = tuple(word for group in drawn for word in group)
    args = engine_args(table=table, user=words)
    assert args.to_argv() == words
    parsed = vars(options_table.text_parser(version).parse_args(options_table.normal(words)))
    for option in options:
        found = args.given(option.name)
        dest = option.name[2:].replace("-", "_")
        theirs: Any = parsed[dest]
        if not found:
            assert theirs is None, option.name
        elif option.count == "0":
            assert theirs is found[-1].on, option.name
        elif option.appends:
            assert theirs == [argument.value for argument in found], option.name
        elif option.count == "+":
            assert theirs == list(found[-1].values), option.name
        else:
            assert (theirs or "") == found[-1].value, option.name


@pytest.mark.parametrize("version", TABLES)
def test_the_shipped_table_has_every_recorded_option(version: str) -> None:
    table = option_table(TABLES[version])
    recorded = options_table.flags(version)
    assert {name for name in recorded if name not in table.spellings} == set()
    assert {name for name in table.spellings if name not in recorded} == set()


# --- through the commands


def setting(found: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = [each for each in found["settings"] if each["name"].replace("_", "-") == name]
    return {key: one[key] for key in ("value", "source", "beaten")}


CLUSTER = (
    "cluster", "plan", "-w", "deepseek-ai/DeepSeek-R1-0528", "--hosts",
    "a=simulated:hls2,b=simulated:hls2", "--trust-remote-code", "--engine", "deepseek_r1", "--json",
)  # fmt: skip
STEPS = [
    ("--num-scheduler-steps", "8"),
    ("--num_scheduler_steps", "8"),
    ("--num-scheduler-steps=8",),
]


@pytest.mark.parametrize("words", STEPS)
def test_a_cluster_keeps_what_the_user_wrote(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    found = reading(capsys, *CLUSTER, "--", *words)
    argv = found["engines"][0]["argv"]
    assert argv[-len(words) :] == list(words)
    assert split_argv(argv).last("--num-scheduler-steps") == "8"
    assert len(split_argv(argv).given("--num-scheduler-steps")) == 1
    stated = setting(found, "--num-scheduler-steps")
    assert (stated["value"], stated["source"]) == ("8", "flag")
    assert {"value": "1", "source": "computed"} in stated["beaten"]


# --- the parts of a list, without an engine's own table

TABLE = OptionTable(
    "made",
    (
        EngineOption("--flag", "0", off=("--no-flag",)),
        EngineOption("--one", aliases=("-o",)),
        EngineOption("--maybe", "?"),
        EngineOption("--many", "+"),
        EngineOption("--again", appends=True),
    ),
)


def read(*words: str) -> EngineArgs:
    return engine_args(table=TABLE, user=words)


def test_a_dash_a_number_and_a_text_with_a_space_are_values() -> None:
    found = read("--many", "-", "-1", "-.5", "--a b", "-c d").user
    assert [argument.values for argument in found] == [("-", "-1", "-.5", "--a b", "-c d")]
    # digits of another script are no number for argparse
    assert [argument.name for argument in read("--one", "-٣").user] == ["--one", "-٣"]


def test_a_value_changes_in_each_spelling_and_in_each_part() -> None:
    made = engine_args(
        table=TABLE,
        ours=(("--one", "1"), ("--maybe", None), ("--one", "4"), ("--many", "2")),
        user=("-o=a=b", "-oc", "--maybe", "5"),
        place="--maybe",
    )
    changed = made.with_values("--one", "new")
    assert changed.to_argv() == (
        "--one", "new", "--maybe", "-o=new", "-onew", "--maybe", "5", "--many", "2",
    )  # fmt: skip
    assert [argument.value for argument in changed.given("-o")] == ["new"] * 3
    later = made.with_values("--many", "6")
    assert later.to_argv()[-2:] == ("--many", "6")
    assert later.last("--many") == "6"


def test_a_command_is_split_at_its_first_option() -> None:
    argv = ("python", "-m", "mod", "serve", "m", "--one", "1", "--flag", "--one", "1", "--maybe")
    made = split_argv(argv, table=TABLE, user=("--one", "1"))
    assert made.head == ("python", "-m", "mod", "serve", "m")
    words = [[word for each in part for word in each.words] for part in (made.ours, made.tail)]
    assert words == [["--one", "1", "--flag"], ["--maybe"]]
    assert made.user_words == ("--one", "1")
    assert split_argv(("--flag",), table=TABLE) == EngineArgs(TABLE, (), read("--flag").user)
    assert split_argv(("python", "-m"), table=TABLE).to_argv() == ("python", "-m")
    assert split_argv(("a", "b"), table=TABLE, user=("a",)).user_words == ("a",)
    with pytest.raises(ValueError, match="is not in the command"):
        split_argv(("python",), user=("--one",))
