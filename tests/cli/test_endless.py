"""Ctrl-C ends a command with 130: with its error, or without a word where it is the usual end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gaudi_launch.core.services.state import chosen
from gaudi_launch.extensions.kubernetes.kube import case as kube
from gaudi_launch.extensions.stack import case as stack
from gaudi_launch.extensions.stack import view as stack_view
from gaudi_launch.extensions.watch.top import case as top
from tests.support.cli import output

pytestmark = pytest.mark.usefixtures("plain_english")


def interrupted(*arguments: Any, **named: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("language", "sentence"), [("en", "Interrupted."), ("zh", "已中断。")])
def test_a_command_that_is_interrupted_says_so(
    language: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(chosen, "resolve", interrupted)
    words = ("wait", "chat", "--lang", language)
    assert output(capsys, *words) == (130, "", f"gaudi-launch: {sentence}\n")
    code, out, err = output(capsys, *words, "--json")
    assert (code, err, json.loads(out)) == (
        130,
        "",
        {
            "schema": 1,
            "error": {
                "id": "common.interrupted",
                "message": sentence,
                "exit_code": 130,
                "values": {},
            },
        },
    )


@pytest.mark.parametrize(
    "words",
    [
        ("top",),
        ("top", "--json"),
        ("kube", "logs", "chat", "-f"),
        ("stack", "logs", "-f"),
        ("stack", "logs", "-f", "--json"),
    ],
)
def test_what_runs_until_ctrl_c_ends_without_a_word(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top, "repeated", interrupted)
    monkeypatch.setattr(kube, "logs", interrupted)
    monkeypatch.setattr(stack_view, "show_logs", interrupted)
    monkeypatch.setattr(stack, "target", lambda *_: stack)
    monkeypatch.setattr(stack, "names", (), raising=False)
    assert output(capsys, *words) == (130, "", "")
