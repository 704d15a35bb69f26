"""The exit codes of the program, and an error as text and for programs."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import set_language

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


def test_an_error_is_an_object_for_programs() -> None:
    error = LaunchError("profiles.unknown", ExitCode.MODEL, found="x", known="a, b")
    assert error.to_json() == {
        "id": "profiles.unknown",
        "message": "There is no profile x. Known: a, b.",
        "exit_code": 5,
        "values": {"found": "x", "known": "a, b"},
    }
    assert (error.id, error.exit_code, error.detail) == ("profiles.unknown", ExitCode.MODEL, None)


def test_the_lines_of_a_log_are_its_detail_as_they_are() -> None:
    error = LaunchError("common.interrupted", ExitCode.ENGINE, detail="last\nlines")
    assert error.to_json() == {
        "id": "common.interrupted",
        "message": "Interrupted.",
        "exit_code": 4,
        "values": {},
        "detail": "last\nlines",
    }


def test_its_text_is_in_the_language_in_which_it_is_read() -> None:
    error = LaunchError("common.interrupted", ExitCode.INTERRUPTED)
    set_language("zh")
    assert (str(error), error.to_json()["message"]) == ("已中断。", "已中断。")
