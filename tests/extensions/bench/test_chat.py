"""``chat`` with a server: an argument, a pipe, or questions and answers at a terminal."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.cli import output
from tests.support.service_record import service
from tests.support.stand_in_server import Manner, serving
from tests.support.waiting import GENEROUS, until

pytestmark = pytest.mark.usefixtures("plain_english")

COMMAND = [sys.executable, "-m", "gaudi_launch", "chat"]
PARIS = {"role": "assistant", "content": "Paris"}


class Keyboard:
    """Stand in for a terminal: its lines, and what is pressed; Ctrl-D at the end."""

    def __init__(self, *lines: str | Callable[[], str]) -> None:
        self.left = iter(lines)

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        line = next(self.left, "")
        return line if isinstance(line, str) else line()


def ctrl_c() -> str:
    raise KeyboardInterrupt


def user(words: str) -> dict[str, str]:
    return {"role": "user", "content": words}


def talks(manner: Manner) -> list[Any]:
    """Return the messages of each question that was answered as a stream."""
    return [body["messages"] for body in manner.questions if body.get("stream")]


@pytest.mark.parametrize("form", ["old-tgi", "base"])
def test_servers_without_chat_are_talked_to_as_well(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(form=form, pieces=2) as (url, manner):
        assert output(capsys, "chat", url, "hello") == (0, "Paris w1\n", "")
    asked: dict[str, Any] = manner.questions[-1]
    assert asked.get("max_tokens", asked.get("parameters", {}).get("max_new_tokens")) == 256


@pytest.mark.parametrize("words", [["run", "m"], ["chat", "demo"], ["chat"]])
def test_a_question_as_argument_is_answered_by_the_service_of_a_model(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    hint = "stop it: gaudi-launch stop demo\n" if words[0] == "run" else ""
    with serving(pieces=2) as (url, manner), service("demo", url):
        assert output(capsys, *words, "法国的首都", "hello") == (0, "Paris w1\n", hint)
    assert manner.questions[-1]["messages"][-1]["content"] == "法国的首都 hello"


def test_control_c_in_a_pipe_is_130() -> None:
    with serving(gap=0.2, pieces=300) as (url, _):
        process = subprocess.Popen(
            [*COMMAND, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("hello")
        process.stdin.close()
        assert process.stdout.read(5) == "Paris"
        process.send_signal(signal.SIGINT)
        assert process.wait(GENEROUS) == 130
        process.stdout.close()


@pytest.mark.parametrize(
    ("content", "fail_from", "code", "out", "questions"),
    [
        # the thoughts are left out
        (b" why\xff?\n", 0, 0, "Paris\n", ["why\ufffd?"]),
        (b" \n", 0, 2, "", []),
        # the first generation decides whether the server has chat
        (b"why", 2, 4, "", ["why"]),
    ],
)
def test_a_question_from_a_pipe(
    content: bytes,
    fail_from: int,
    code: int,
    out: str,
    questions: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    with serving(thinks=True, pieces=1, fail_from=fail_from) as (url, manner):
        found = output(capsys, "chat", url)
    assert found[:2] == (code, out) and "Traceback" not in found[2]
    assert (url in found[2]) is bool(fail_from)
    assert talks(manner) == [[user(words)] for words in questions]


def test_the_options_of_a_chat_reach_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--system", "be brief", "--max-tokens", "5", "--temperature", "0.5")
    with serving(name="m") as (url, manner):
        assert output(capsys, "chat", url, "--model", "m", *options, "hello")[0] == 0
        asked = manner.questions[-1]
        assert output(capsys, "chat", url, "hello")[0] == 0
        bare = manner.questions[-1]
    system = {"role": "system", "content": "be brief"}
    assert (asked["model"], asked["messages"]) == ("m", [system, user("hello")])
    assert (asked["max_tokens"], asked["temperature"]) == (5, 0.5)
    assert bare["messages"] == [user("hello")] and {"max_tokens", "temperature"}.isdisjoint(bare)
    with serving(bad="silent") as (url, _):
        assert output(capsys, "chat", url, "--timeout", "1", "hello")[0] == 4


def test_a_conversation_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ("one\n", "\n", "more\n", "/reset\n", "/what is this\n", ctrl_c, "two \n")
    monkeypatch.setattr(sys, "stdin", Keyboard(*keys))
    with serving(thinks=True, pieces=1, name="m") as (url, manner):
        code, out, err = output(capsys, "chat", url)
    assert (code, err) == (0, "")
    assert talks(manner) == [[user("one")], [user("one"), PARIS, user("more")], [user("two")]]
    begin, *shown = out.split("> ")
    assert "Chat with m" in begin and url in begin
    assert shown == [
        "hmm\n\nParis\n\n",
        "",
        "hmm\n\nParis\n\n",
        "History cleared.\n",
        "/what is not a command; the only command is /reset.\n",
        "\nCtrl-D ends the chat.\n",
        "hmm\n\nParis\n\n",
        "\n",
    ]


def test_ctrl_c_at_a_terminal_ends_the_answer_and_keeps_its_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(gap=0.2, pieces=300) as (url, manner):

        def press() -> None:
            # by now the client has read the first events, also on a busy machine
            until(lambda: len(manner.sent) > 10)
            # the answer under way stays slow: on a busy machine it would end before the signal
            manner.pieces = 1
            os.kill(os.getpid(), signal.SIGINT)

        pressing = threading.Thread(target=press)

        def ask() -> str:
            pressing.start()
            return "one\n"

        monkeypatch.setattr(sys, "stdin", Keyboard(ask, "two\n"))
        code, out, _ = output(capsys, "chat", url)
        pressing.join()
    assert code == 0 and "(stopped)" in out
    [_, [one, part, two]] = talks(manner)
    assert (one, two) == (user("one"), user("two"))
    assert part["content"].startswith("Paris w1")


def test_a_failure_at_a_terminal_ends_only_its_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard("one\n", "two\n"))
    with serving(fail_from=2) as (url, manner):
        code, out, err = output(capsys, "chat", url)
    # the first question is forgotten
    assert (code, err, talks(manner)) == (0, "", [[user("one")], [user("two")]])
    assert out.count("the engine is dead") == 2 and "Traceback" not in out
