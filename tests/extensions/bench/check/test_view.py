"""The rows of check: one after the other at a terminal, and all of them at the end."""

from __future__ import annotations

import sys

import pytest

from gaudi_launch.core.base.messages import message, set_language
from gaudi_launch.core.services.endpoint import Target
from gaudi_launch.extensions.bench.check import view as check
from gaudi_launch.extensions.bench.check.rows import CheckRow
from tests.support.views import views

pytestmark = pytest.mark.usefixtures("plain_english")

TARGET = Target("http://h:1", name="chat")
GOOD = CheckRow("chat", "ok", message("common.interrupted"), 1.239)
SKIPPED = CheckRow("long", "skip", message("common.interrupted"))
BAD = CheckRow("models", "fail", message("measure.fail_key", status=401), 0.5, fault="way")


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    views(
        capsys,
        "check",
        [
            lambda: check.show(TARGET, [GOOD, SKIPPED, BAD], False),
            lambda: check.show(TARGET, [GOOD], False),
        ],
    )


@pytest.mark.parametrize(("language", "shown"), [("en", "chat: ok\n"), ("zh", "对话：正常\n")])
def test_a_result_is_told_at_once_at_a_terminal_only(
    language: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_language(language)
    check.tell(GOOD)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    check.tell(GOOD)
    assert capsys.readouterr() == ("", shown)
