"""The engine's argument list: read as the engine reads it, written so that the user's part wins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.planning.engine_args import EngineArgs, engine_args, split_argv
from gaudi_launch.planning.option_table import UPSTREAM, EngineOption, option_table
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


def test_of_a_pair_the_last_counts() -> None:
    both = user("--enable-prefix-caching", "--no-enable-prefix-caching")
    assert both.has("--no-enable-prefix-caching") and not both.has("--enable-prefix-caching")
    assert both.in_force("--enable-prefix-caching") == ("--no-enable-prefix-caching", None)


def test_what_the_user_wrote_stays_as_it_is_and_last() -> None:
    words = ("--max_num_seqs=7", "-tp", "4", "--foo=3", "bar", "--seed", "-1")
    made = engine_args(
        table=option_table("vllm-fork-1.22"),
        head=("python3", "-m", "mod"),
        ours=(("--max-num-seqs", "128"), ("--host", "::"), ("--seed", "0")),
        user=words,
    )
    assert made.to_argv() == ("python3", "-m", "mod", "--host", "::", *words)
    changed = (
        made.with_option("--tensor-parallel-size", "8")
        .with_option("--host", "h")
        .with_option("--port", "1")
    )
    assert changed.to_argv() == ("python3", "-m", "mod", "--host", "h", "--port", "1", *words)
    assert changed.without("--host", "--seed").to_argv() == (
        "python3",
        "-m",
        "mod",
        "--port",
        "1",
        *words,
    )
    again = split_argv(changed.to_argv(), table=changed.table, user=words)
    assert (again.head, again.user_words) == (changed.head, words)
    assert again == changed


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


PLAN = (
    "plan",
    "-w",
    "/models/Qwen2-72B-Instruct",
    "-n",
    "4",
    "--machine",
    "simulated:hls2",
    "--json",
)


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22", "vllm-gaudi"])
def test_a_plan_shows_the_value_that_the_engine_uses(
    engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--gpu_memory_utilization=0.55", "--foo=3", "bar", "-tp", "4")
    found = reading(capsys, *PLAN, "--engine", engine, "--", *words)
    assert found["argv"][-len(words) :] == list(words)
    assert len(split_argv(found["argv"]).given("--gpu-memory-utilization")) == 1
    stated = setting(found, "--gpu-memory-utilization")
    assert (stated["value"], stated["source"]) == ("0.55", "flag")
    assert [each["source"] for each in stated["beaten"]] == ["computed"]
    assert setting(found, "--foo") == {"value": "3", "source": "flag", "beaten": []}
    assert setting(found, "bar") == {"value": None, "source": "flag", "beaten": []}
    assert setting(found, "--tensor-parallel-size") == {
        "value": "4",
        "source": "flag",
        "beaten": [],
    }


def test_our_option_that_loses_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = reading(
        capsys, *PLAN, "-e", "4", "--engine", "vllm-fork@1.21", "--", "--num-scheduler-steps", "8"
    )
    assert setting(found, "--num-scheduler-steps")["beaten"] == [{"value": "4", "source": "flag"}]
    (warning,) = [each for each in found["warnings"] if each["id"] == "plan.overruled"]
    assert "-e" in warning["message"]
