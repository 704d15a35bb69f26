"""Lengths and times as they are typed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.planning.parse import (
    MOST_SEQS,
    MOST_TOKENS,
    fraction,
    number,
    pair,
    port,
    reduce,
    replicas,
    seconds,
    tokens,
)


@pytest.mark.parametrize("text", ["0k", "k", "32 k", "32kb", "-1k", "1g", "1T", "\u0663k", "1e3"])
def test_what_is_no_length_or_too_long_is_refused(text: str) -> None:
    with pytest.raises(LaunchError, match="an integer from"):
        tokens("-l", text)


def refused(what: Callable[[], object]) -> tuple[str, ExitCode, dict[str, object]]:
    with pytest.raises(LaunchError) as caught:
        what()
    assert str(caught.value)
    return caught.value.id, caught.value.exit_code, dict(caught.value.text.values)


USAGE = ExitCode.USAGE
LONGEST = {"longest": MOST_TOKENS}
HOT = {"most": MOST_SEQS, **LONGEST}


def test_each_refusal_names_the_option_the_value_and_the_bounds() -> None:
    cases: dict[str, tuple[Callable[[], object], str, dict[str, object]]] = {
        "number": (
            lambda: number("-b", "9 ", 10, 20),
            "plan.number",
            {"flag": "-b", "found": "9 ", "least": 10, "most": 20},
        ),
        "length": (
            lambda: tokens("-l", "3k", 2000),
            "plan.number",
            {"flag": "-l", "found": "3k", "least": 1, "most": 2000},
        ),
        "plain length": (
            lambda: pair("-i", "0,1", short=False),
            "plan.range",
            {"flag": "-i", "found": "0,1", **LONGEST},
        ),
        "time": (
            lambda: seconds("--wait", "1s", least=2, most=5),
            "plan.time",
            {"flag": "--wait", "found": "1s", "least": "2", "most": "5"},
        ),
        "no time": (
            lambda: seconds("--wait", "soon"),
            "plan.time",
            {"flag": "--wait", "found": "soon", "least": "1", "most": "4.29497e+09"},
        ),
        "three": (
            lambda: pair("-i", "1,2,3"),
            "plan.range",
            {"flag": "-i", "found": "1,2,3", **LONGEST},
        ),
        "order": (
            lambda: pair("-o", "3,2"),
            "plan.range",
            {"flag": "-o", "found": "3,2", **LONGEST},
        ),
        "part": (
            lambda: pair("-o", "0,x"),
            "plan.range",
            {"flag": "-o", "found": "0,x", **LONGEST},
        ),
        "hot": (lambda: reduce("8"), "plan.reduce_words", {"found": "8", **HOT}),
        "hot batch": (lambda: reduce("0,8"), "plan.reduce_words", {"found": "0,8", **HOT}),
        "hot length": (lambda: reduce("8,0"), "plan.reduce_words", {"found": "8,0", **HOT}),
        "fraction": (
            lambda: fraction("-u", "1.5", 0.1, 1.0),
            "plan.fraction",
            {"flag": "-u", "found": "1.5", "least": 0.1, "most": 1.0},
        ),
        "replicas": (lambda: replicas("3..2"), "ray.replicas_words", {"found": "3..2"}),
        "replica": (lambda: replicas("65"), "ray.replicas_words", {"found": "65"}),
        "most replicas": (lambda: replicas("1..x"), "ray.replicas_words", {"found": "1..x"}),
        "port": (
            lambda: port("-p", "65536"),
            "plan.number",
            {"flag": "-p", "found": "65536", "least": 1, "most": 65535},
        ),
    }
    found = {name: refused(what) for name, (what, _, _) in cases.items()}
    expected = {name: (id, USAGE, values) for name, (_, id, values) in cases.items()}
    # the largest number of a time is not of interest here
    for answer in (found, expected):
        answer["no time"][2].pop("most")
    assert found == expected
