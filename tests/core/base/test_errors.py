"""The exit codes of the program, and an error as text and for programs."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.errors import ExitCode

pytestmark = pytest.mark.usefixtures("plain_english")


def test_each_exit_code_keeps_its_meaning() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "DONE": 0,
        "FAILED": 1,
        "USAGE": 2,
        "MACHINE": 3,
        "ENGINE": 4,
        "MODEL": 5,
        "INTERRUPTED": 130,
    }
