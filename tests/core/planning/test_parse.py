"""Lengths and times as they are typed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.planning.parse import (
    MOST_SEQS,
    MOST_TOKENS,
    if_given,
    number,
    port,
    read_time,
    seconds,
    tokens,
)
from gaudi_launch.core.planning.parse_ranges import fraction, pair, reduce, replicas
from tests.support.refusals import refusal


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("32000", 32000),
        ("32k", 32000),
        ("32K", 32768),
        ("1.5k", 1500),
        ("1m", 1_000_000),
        ("1M", 1 << 20),
    ],
)
def test_a_length_is_read_as_vllm_reads_it(text: str, count: int) -> None:
    assert tokens("-l", text) == count


@pytest.mark.parametrize("text", ["0k", "k", "32 k", "32kb", "-1k", "1g", "1T", "\u0663k", "1e3"])
def test_what_is_no_length_or_too_long_is_refused(text: str) -> None:
    with pytest.raises(LaunchError, match="an integer from"):
        tokens("-l", text)


def test_letters_of_the_start_scripts_are_plain_numbers() -> None:
    with pytest.raises(LaunchError, match="4,16k"):
        pair("-i", "4,16k", short=False)
    with pytest.raises(LaunchError, match="8,16k"):
        reduce("-r", "8,16k", short=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90),
        ("90s", 90),
        ("5m", 300),
        ("5min", 300),
        ("1h", 3600),
        ("1.5h", 5400),
        ("800ms", 0.8),
        ("1d", 86400),
    ],
)
def test_a_time_is_seconds_or_has_a_unit(text: str, value: float) -> None:
    assert read_time(text) == value


@pytest.mark.parametrize("text", ["", "m", "5x", "-5", "1m30s", "inf", "nan", "1e9", "\u0665m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    assert read_time(text) is None
    with pytest.raises(LaunchError, match="a time from"):
        seconds("--wait", text)


def test_an_option_that_is_not_given_or_empty_has_no_value() -> None:
    assert [if_given(number, "-n", text, 1, 8) for text in (None, "", "8")] == [None, None, 8]
    with pytest.raises(LaunchError):
        if_given(number, "-n", "9", 1, 8)


USAGE = ExitCode.USAGE
LONGEST = {"longest": MOST_TOKENS}
HOT = {"most": MOST_SEQS, **LONGEST}


def no_number(flag: str, text: str, least: int, most: int) -> tuple[str, dict[str, Any]]:
    return "plan.number", {"flag": flag, "found": text, "least": least, "most": most}


def no_time(text: str, least: str, most: str) -> tuple[str, dict[str, Any]]:
    return "plan.time", {"flag": "--wait", "found": text, "least": least, "most": most}


def no_range(flag: str, text: str) -> tuple[str, dict[str, Any]]:
    return "plan.range", {"flag": flag, "found": text, **LONGEST}


def no_replicas(text: str) -> tuple[str, dict[str, Any]]:
    return "ray.replicas_words", {"found": text, "most": 9}


def test_each_refusal_names_the_option_the_value_and_the_bounds() -> None:
    cases: dict[str, tuple[Callable[[], object], str, dict[str, object]]] = {
        "number": (lambda: number("-b", "9 ", 10, 20), *no_number("-b", "9 ", 10, 20)),
        "length": (lambda: tokens("-l", "3k", 2000), *no_number("-l", "3k", 1, 2000)),
        "plain length": (lambda: pair("-i", "0,1", short=False), *no_range("-i", "0,1")),
        "time": (lambda: seconds("--wait", "1s", least=2, most=5), *no_time("1s", "2", "5")),
        "no time": (lambda: seconds("--wait", "soon"), *no_time("soon", "1", "4.29497e+09")),
        "three": (lambda: pair("-i", "1,2,3"), *no_range("-i", "1,2,3")),
        "order": (lambda: pair("-o", "3,2"), *no_range("-o", "3,2")),
        "part": (lambda: pair("-o", "0,x"), *no_range("-o", "0,x")),
        "hot": (lambda: reduce("-r", "x"), "plan.reduce_words", {"found": "x", **HOT}),
        "hot batch": (lambda: reduce("-r", "0,8"), "plan.reduce_words", {"found": "0,8", **HOT}),
        "hot length": (lambda: reduce("-r", "8,0"), "plan.reduce_words", {"found": "8,0", **HOT}),
        "fraction": (
            lambda: fraction("-u", "1.5", 0.1, 1.0),
            "plan.fraction",
            {"flag": "-u", "found": "1.5", "least": 0.1, "most": 1.0},
        ),
        "replicas": (lambda: replicas("-x", "3..2", 9), *no_replicas("3..2")),
        "replica": (lambda: replicas("-x", "10", 9), *no_replicas("10")),
        "most replicas": (lambda: replicas("-x", "1..x", 9), *no_replicas("1..x")),
        "port": (lambda: port("-p", "65536"), *no_number("-p", "65536", 1, 65535)),
    }
    found = {name: refusal(what) for name, (what, _, _) in cases.items()}
    expected = {name: (id, USAGE, values) for name, (_, id, values) in cases.items()}
    # the largest number of a time is not of interest here
    for answer in (found, expected):
        answer["no time"][2].pop("most")
    assert found == expected


def test_bounds_belong_to_the_range() -> None:
    assert [number("-b", " 10 ", 10, 20), number("-b", "20", 10, 20)] == [10, 20]
    assert tokens("-l", "2k", 2000) == 2000
    assert [seconds("x", "2", least=2, most=5), seconds("x", "5", least=2, most=5)] == [2.0, 5.0]
    assert (pair("-i", "7"), pair("-i", "7,7")) == ((7, 7), (7, 7))
    assert (reduce("-r", "8"), reduce("-r", "8,9")) == ((8, 8), (8, 9))
    assert [replicas("-x", text) for text in ("2", "2..2", "1..9")] == [(2, 2), (2, 2), (1, 9)]
    assert [port("-p", "1"), port("-p", "65535")] == [1, 65535]


@pytest.mark.parametrize(
    ("text", "plain", "strict"),
    [
        ("0.5", True, True),
        ("1", True, True),
        ("1.", True, False),
        (".5", True, False),
        ("0.1", True, True),
        ("-0.5", False, False),
        ("1e-1", False, False),
        ("0.09", False, False),
        ("0.5" + "0" * 17, False, False),
        ("0.5" + "0" * 16, True, True),
    ],
)
def test_a_fraction_is_kept_as_it_was_written(text: str, plain: bool, strict: bool) -> None:
    for strictly, accepted in ((False, plain), (True, strict)):
        if accepted:
            assert fraction("-u", f" {text} ", 0.1, 1.0, strictly) == text
        else:
            what = partial(fraction, "-u", text, 0.1, 1.0, strictly)
            assert refusal(what)[0] == "plan.fraction"


def test_times_without_a_unit_are_seconds_and_others_are_none() -> None:
    times = {".5": 0.5, "2 h": 7200, " 3S ": 3, "1.5.2": None, "h": None}
    assert {text: read_time(text) for text in times} == times
