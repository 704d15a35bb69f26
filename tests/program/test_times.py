"""Every option that takes a time takes a unit; what is no time is refused before anything is
looked for."""

from __future__ import annotations

import pytest

from gaudi_launch.cli.main import run

pytestmark = pytest.mark.usefixtures("plain_english")

COMMANDS = [
    (("serve", "-w", "/no/model", "--engine", "cpu"), "--phase-timeout"),
    (("wait", "none"), "--timeout"),
    (("stop", "none"), "--drain"),
    (("check", "127.0.0.1:1"), "--timeout"),
    (("bench", "127.0.0.1:1"), "--timeout"),
    (("bench", "127.0.0.1:1", "--trace", "t.csv"), "--seconds"),
    (("chat", "127.0.0.1:1"), "--timeout"),
    (("cluster", "up", "-w", "/no/model", "--hosts", "a"), "--wait"),
]


@pytest.mark.parametrize(("words", "option"), COMMANDS)
def test_a_time_that_cannot_be_is_refused(
    words: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, option, "5x"]) == 2
    assert f"{option} is '5x'; expected a time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "option"),
    [each for each in COMMANDS if each[0][0] in ("serve", "wait", "stop", "check")],
)
def test_minutes_are_read(
    words: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run([*words, option, "5m"])
    assert option not in capsys.readouterr().err


def test_restart_takes_minutes_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["restart", "none", "--drain", "5m"]) == 2
    assert "none" in capsys.readouterr().err
    assert run(["restart", "none", "--drain", "soon"]) == 2
    assert "--drain is 'soon'; expected a time" in capsys.readouterr().err
