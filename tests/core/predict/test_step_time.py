"""Step times as straight lines, and constants that a user gives."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.predict.step_time import StepTime
from tests.support.refusals import failing

PLAIN = StepTime(1.0, 2.0, 0.5, 3.0, 4.0, 0.25, "plain")
BENT = StepTime(1.0, 2.0, 0.5, 3.0, 4.0, 0.25, "bent", (0.0, 10.0, 20.0))


def test_given_constants_are_named_and_a_given_line_is_straight() -> None:
    assert BENT.with_constants({}) is BENT
    assert BENT.with_constants({"prefill_fixed": "7", "prefill_token": 1}) == StepTime(
        7.0, 1.0, 0.5, 3.0, 4.0, 0.25, "bent, prefill_fixed, prefill_token given", BENT.bend
    )
    assert BENT.with_constants({"decode_block": 0.0}) == StepTime(
        1.0, 2.0, 0.5, 3.0, 4.0, 0.0, "bent, decode_block given", ()
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prefill_fixed", "much"),
        ("prefill_fixed", "-1"),
        ("prefill_fixed", "nan"),
        ("prefill_fixed", "1e6"),
        ("prefill", "1"),
        ("basis", "1"),
    ],
)
def test_a_constant_that_is_none_is_refused(name: str, text: str) -> None:
    with failing("warmup.bad_constant", ExitCode.USAGE) as caught:
        PLAIN.with_constants({name: text})
    known = (
        "prefill_fixed, prefill_token, prefill_attention, decode_fixed, decode_sequence, "
        "decode_block, prefill_masked"
    )
    assert caught.value.text.values == {"name": name, "found": text, "known": known}


@pytest.mark.parametrize(
    ("changes", "accepted"),
    [
        ({"prefill_fixed": 0, "prefill_token": 0}, False),
        ({"decode_fixed": 0, "decode_block": 0}, False),
        ({"prefill_fixed": 0, "decode_fixed": 0}, True),
        ({"prefill_token": 0, "decode_block": 0}, True),
        ({"prefill_fixed": 999999}, True),
    ],
)
def test_steps_must_take_time(changes: dict[str, float | str], accepted: bool) -> None:
    if accepted:
        given = PLAIN.with_constants(changes).constants()
        assert given == {**PLAIN.constants(), **changes}
        return
    with failing("warmup.free_steps", ExitCode.USAGE):
        PLAIN.with_constants(changes)
