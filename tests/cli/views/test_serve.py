"""The lines that a user copies when a service is ready."""

from __future__ import annotations

import json
import shlex

import pytest

from gaudi_launch.cli.views.serve import say_ready


def request(capsys: pytest.CaptureFixture[str], no_chat: str) -> tuple[str, dict[str, object], str]:
    say_ready("m", "http://127.0.0.1:8000", 3, "/log", "/v1/completions", no_chat)
    out, _ = capsys.readouterr()
    words = shlex.split(next(line for line in out.splitlines() if line.startswith("  curl")))
    return words[3], json.loads(words[-1]), out


def test_a_chat_is_shown_where_the_server_answers_one(capsys: pytest.CaptureFixture[str]) -> None:
    url, question, _ = request(capsys, "")
    assert (url, "messages" in question) == ("http://127.0.0.1:8000/v1/chat/completions", True)


def test_a_completion_is_shown_where_the_server_refuses_chats(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refusal = "/v1/chat/completions: 400 could not locate think tokens"
    url, question, out = request(capsys, refusal)
    assert (url, "prompt" in question) == ("http://127.0.0.1:8000/v1/completions", True)
    assert f"It does not support chat ({refusal})" in out
