"""The engine's argument list: read as the engine reads it, written so that the user's part wins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.planning.engine_args import (
    NO_ARGS,
    EngineArgs,
    engine_args,
    positional_model,
    split_argv,
)
from gaudi_launch.core.planning.engine_argument import Argument
from gaudi_launch.core.planning.option_table import (
    UPSTREAM,
    EngineOption,
    OptionTable,
    option_table,
)
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


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (("--seed", "1"), "--seed", "1"),
        (("--seed=1",), "--seed", "1"),
        (("--max_num_seqs", "7"), "--max-num-seqs", "7"),
        (("--max-num-seqs", "7", "--max_num_seqs=9"), "--max-num-seqs", "9"),
        (("-tp", "4"), "--tensor-parallel-size", "4"),
        (("-tp=4",), "--tensor-parallel-size", "4"),
        (("-qawq",), "--quantization", "awq"),
        (("--tensor-par", "4"), "--tensor-parallel-size", "4"),
        (("--seed", "-1"), "--seed", "-1"),
        (("--cpu-offload-gb", "-0.5"), "--cpu-offload-gb", "-0.5"),
        (("--chat-template", "-a b"), "--chat-template", "-a b"),
        (("--enforce-eager", "--seed", "1"), "--enforce-eager", ""),
        (("--chat-template=",), "--chat-template", ""),
        (("--chat-template=",), "--seed", None),
        (("--lora-modules", "a=1", "b=2", "--seed", "3"), "--seed", "3"),
        (
            ("--hf-overrides.a.b", "1", "--hf-overrides.c=x"),
            "--hf-overrides",
            '{"a": {"b": "1"}, "c": "x"}',
        ),
    ],
)
def test_an_option_is_read_in_each_spelling(
    words: tuple[str, ...], name: str, value: str | None
) -> None:
    assert user(*words).last(name) == value


def test_a_value_is_no_option() -> None:
    assert not user("--served-model-name", "seed", "--chat-template", "x").has("--seed")
    assert user("--lora-modules", "a=1", "b=2").given("--lora-modules")[0].values == ("a=1", "b=2")


def test_what_the_user_wrote_stays_as_it_is_and_last() -> None:
    words = ("--max_num_seqs=7", "-tp", "4", "--foo=3", "bar", "--seed", "-1")
    made = engine_args(
        table=option_table("vllm-fork-1.22"),
        head=("python3", "-m", "mod"),
        ours=(("--max-num-seqs", "128"), ("--host", "::"), ("--seed", "0")),
        user=words,
    )
    assert made.to_argv() == ("python3", "-m", "mod", "--host", "::", *words)
    changed = made.with_option("--tensor-parallel-size", "8").with_option("--host", "h")
    changed = changed.with_option("--port", "1")
    assert changed.to_argv() == ("python3", "-m", "mod", "--host", "h", "--port", "1", *words)
    less = changed.without("--host", "--seed").to_argv()
    assert less == ("python3", "-m", "mod", "--port", "1", *words)
    again = split_argv(changed.to_argv(), table=changed.table, user=words)
    assert (again.head, again.user_words) == (changed.head, words)
    assert again == changed


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


@pytest.mark.parametrize("spelling", ["-steps 8", "_steps 8", "-steps=8"])
def test_a_cluster_keeps_what_the_user_wrote(
    spelling: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"--num-scheduler{spelling}".split()
    found = reading(capsys, *CLUSTER, "--", *words)
    argv = found["engines"][0]["argv"]
    assert argv[-len(words) :] == words
    assert split_argv(argv).last("--num-scheduler-steps") == "8"
    assert len(split_argv(argv).given("--num-scheduler-steps")) == 1
    stated = setting(found, "--num-scheduler-steps")
    assert (stated["value"], stated["source"]) == ("8", "flag")
    assert {"value": "1", "source": "computed"} in stated["beaten"]


PLAN = (
    *("plan", "-w", "/models/Qwen2-72B-Instruct", "-n", "4"),
    *("--machine", "simulated:hls2", "--json"),
)


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi"])
def test_a_plan_shows_the_value_that_the_engine_uses(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--gpu_memory_utilization=0.55", "--max-logprobs=3", "-tp", "4")
    found = reading(capsys, *PLAN, "--engine", engine, "--", *words)
    assert found["argv"][-len(words) :] == list(words)
    assert len(split_argv(found["argv"]).given("--gpu-memory-utilization")) == 1
    stated = setting(found, "--gpu-memory-utilization")
    assert (stated["value"], stated["source"]) == ("0.55", "flag")
    assert [each["source"] for each in stated["beaten"]] == ["computed"]
    for name, value in (("--max-logprobs", "3"), ("--tensor-parallel-size", "4")):
        assert setting(found, name) == {"value": value, "source": "flag", "beaten": []}


def test_our_option_that_loses_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = reading(
        capsys, *PLAN, "-e", "4", "--engine", "vllm-fork@1.21", "--", "--num-scheduler-steps", "8"
    )
    assert setting(found, "--num-scheduler-steps")["beaten"] == [{"value": "4", "source": "flag"}]
    (warning,) = [each for each in found["warnings"] if each["id"] == "plan.overruled"]
    assert "-e" in warning["message"]


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


def test_every_argument_is_read_as_one_record() -> None:
    flag, one, maybe, many, again = TABLE.options
    words = (
        "x", "--no-flag", "y", "--one", "1", "2", "-o=3", "-o4", "--maybe", "5", "6", "--many",
        "7", "8", "--one=", "--ag", "9", "--else", "--other=1", "-z", "-zq=2",
    )  # fmt: skip
    assert read(*words).user == (
        Argument("x", ("x",), positional=True),
        Argument("--flag", ("--no-flag",), on=False, option=flag),
        Argument("y", ("y",), positional=True),
        Argument("--one", ("--one", "1"), ("1",), option=one),
        Argument("2", ("2",), positional=True),
        Argument("--one", ("-o=3",), ("3",), attached=True, option=one),
        Argument("--one", ("-o4",), ("4",), attached=True, option=one),
        Argument("--maybe", ("--maybe", "5"), ("5",), option=maybe),
        Argument("6", ("6",), positional=True),
        Argument("--many", ("--many", "7", "8"), ("7", "8"), option=many),
        Argument("--one", ("--one=",), ("",), attached=True, option=one),
        Argument("--again", ("--ag", "9"), ("9",), option=again),
        Argument("--else", ("--else",)),
        Argument("--other", ("--other=1",), ("1",), attached=True),
        Argument("-z", ("-z",)),
        Argument("-zq", ("-zq=2",), ("2",), attached=True),
    )


def test_everything_after_two_dashes_is_a_value() -> None:
    found = read("--many", "1", "--", "--one", "2").user
    assert found[0].values == ("1",)
    assert found[1:] == tuple(
        Argument(word, (word,), positional=True) for word in ("--", "--one", "2")
    )


def test_a_dash_a_number_and_a_text_with_a_space_are_values() -> None:
    found = read("--many", "-", "-1", "-.5", "--a b", "-c d").user
    assert [argument.values for argument in found] == [("-", "-1", "-.5", "--a b", "-c d")]
    # digits of another script are no number for argparse
    assert [argument.name for argument in read("--one", "-٣").user] == ["--one", "-٣"]


def test_a_key_after_the_dot_is_no_key_of_a_flag() -> None:
    found = read("--flag.a", "--one.a.b", "--flag", "--new.c=1", "--one.d").user
    assert [(each.name, each.key, each.values, each.attached) for each in found] == [
        ("--flag", "", (), False),
        ("--one", "a.b", ("--flag",), False),
        ("--new", "c", ("1",), True),
        ("--one", "d", (), False),
    ]
    keys = read("--one.a.b", "1", "--one.a.c", "2", "--one.a.b.d", "3", "--one", "x")
    assert keys.last("--one") == '{"a": {"b": {"d": "3"}, "c": "2"}}'
    assert keys.in_force("--one") == ("--one", '{"a": {"b": {"d": "3"}, "c": "2"}}')


@pytest.mark.parametrize(
    ("words", "name", "shown"),
    [
        (("--flag",), "--flag", ("--flag", None)),
        (("--flag", "--no-flag"), "--flag", ("--no-flag", None)),
        (("-o", "1", "--one=a b"), "--one", ("--one", "a b")),
        (("--one=",), "-o", ("--one", "")),
        (("--many", "a b", "c"), "--many", ("--many", "'a b' c")),
        (("--again", "1", "--again", "2 3"), "--again", ("--again", "1 '2 3'")),
    ],
)
def test_the_option_in_force_has_its_long_name_and_all_its_values(
    words: tuple[str, ...], name: str, shown: tuple[str, str | None]
) -> None:
    assert read(*words).in_force(name) == shown


def test_the_last_of_a_pair_counts_in_both_orders() -> None:
    assert read("--no-flag", "--flag").has("--flag")
    assert not read("--no-flag", "--flag").has("--no-flag")
    assert read("--flag", "--no-flag").has("--one", "--no-flag")


def test_a_name_is_made_canonical_by_the_lists_own_table() -> None:
    assert [NO_ARGS.canonical(name) for name in ("--a_b", "-o", "-tp=4")] == ["--a-b", "-o", "-tp"]
    names = {"-o": "--one", "--no-flag": "--flag", "--man": "--many", "": ""}
    assert {name: read().canonical(name) for name in names} == names


def test_our_option_is_set_in_its_place_and_in_its_spelling() -> None:
    made = engine_args(table=TABLE, head=("run",), ours=(("-o", "1"), ("--flag", None)))
    assert made.to_argv() == ("run", "-o", "1", "--flag")
    assert made.with_option("--one", "2").to_argv() == ("run", "-o", "2", "--flag")
    assert made.with_option("--maybe").to_argv() == ("run", "-o", "1", "--flag", "--maybe")
    attached = replace(made, ours=(*read("--one=1").user, *made.ours[1:]))
    assert attached.with_option("-o", "2").to_argv() == ("run", "-o", "2", "--flag")


def test_a_list_without_an_option_lacks_it_in_each_part() -> None:
    made = engine_args(
        table=TABLE,
        ours=(("--one", "1"), ("--maybe", None), ("--many", "2")),
        user=("--again", "3"),
        place="--maybe",
    )
    assert made.to_argv() == ("--one", "1", "--maybe", "--again", "3", "--many", "2")
    assert made.without("--many", "-o", "--again").to_argv() == ("--maybe", "--again", "3")
    less = made.without("--again", of_user=True)
    assert less.to_argv() == ("--one", "1", "--maybe", "--many", "2")
    assert less.user_words == ()


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


def test_the_users_arguments_follow_the_scripts_place() -> None:
    def placed(*user: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        ours = (("--one", "1"), ("--maybe", "2"), ("--many", "3"), ("--again", "4"))
        made = engine_args(table=TABLE, ours=ours, user=user, place="--maybe")
        tail = tuple(word for argument in made.tail for word in argument.words)
        return made.to_argv(), tail

    # before the place an option stays, as the script sends it twice; after it the user's counts
    assert placed("--one", "9", "--many", "8") == (
        ("--one", "1", "--maybe", "2", "--one", "9", "--many", "8", "--again", "4"),
        ("--again", "4"),
    )
    assert placed() == (("--one", "1", "--maybe", "2", "--many", "3", "--again", "4"), ())


def test_ours_that_differ_from_the_users_file_are_left_out() -> None:
    made = engine_args(
        table=TABLE,
        ours=(("--one", "1"), ("--many", "2"), ("--flag", None)),
        file=("-o", "1", "--many", "7"),
    )
    assert made.to_argv() == ("--one", "1", "--flag")
    assert [argument.name for argument in made.every] == ["--one", "--many", "--one", "--flag"]
    assert made.last("--many") == "7"
    assert made.with_option("--many", "3") == made


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


@pytest.mark.parametrize(
    ("argv", "model"),
    [
        (("vllm", "serve", "m", "--port", "1"), "m"),
        (("/opt/bin/vllm", "serve", "m"), "m"),
        (("python", "-m", "vllm.entrypoints.cli.main", "serve", "m"), "m"),
        (("python", "-m", "vllm.entrypoints.cli.main", "serve", "--model", "m"), None),
        (("python", "-m", "another.main", "serve", "m"), None),
        (("vllm", "bench", "m"), None),
        (("vllm", "serve"), None),
        (("x", "vllm", "serve", "-m"), None),
    ],
)
def test_the_model_of_vllm_serve_is_its_first_value(
    argv: tuple[str, ...], model: str | None
) -> None:
    assert positional_model(argv) == model
