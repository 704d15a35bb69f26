"""Lengths and times as they are typed."""

from __future__ import annotations

import pytest

from gaudi_launch.errors import LaunchError
from gaudi_launch.planning.parse import (
    if_given,
    number,
    pair,
    ranges,
    read_time,
    reduce,
    seconds,
    tokens,
)


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


def test_ranges_and_the_hot_length_take_it_too() -> None:
    assert pair("-i", "64,32K") == (64, 32768)
    assert reduce("8,24k") == (8, 24000)


def test_letters_of_the_start_scripts_are_plain_numbers() -> None:
    with pytest.raises(LaunchError, match="an integer from"):
        ranges("4,16k", None, short=False)
    with pytest.raises(LaunchError, match="an integer from"):
        reduce("8,16k", short=False)


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


def test_a_time_has_bounds() -> None:
    assert seconds("--wait", "0", least=0) == 0
    with pytest.raises(LaunchError, match="a time from"):
        seconds("--wait", "0")
    with pytest.raises(LaunchError, match="a time from"):
        seconds("--wait", "2h", most=3600)


def test_an_option_that_is_not_given_or_empty_has_no_value() -> None:
    assert [if_given(number, "-n", text, 1, 8) for text in (None, "", "8")] == [None, None, 8]
    with pytest.raises(LaunchError):
        if_given(number, "-n", "9", 1, 8)
