"""``chat``: one question from a pipe, or questions and answers at a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.services.endpoint import Target
from gaudi_launch.extensions.bench import chat, conversation, webui
from gaudi_launch.extensions.bench.chat_options import ChatOptions
from gaudi_launch.extensions.bench.client import ServerError

pytestmark = pytest.mark.usefixtures("plain_english")

Say = Callable[[str, bool], None]


class Conversation:
    """Answers each question with a thought and its words in capitals."""

    served = SimpleNamespace(model="m")

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.resets = 0
        self.failure: ServerError | None = None
        self.is_cut = False

    def reset(self) -> None:
        self.resets += 1

    def answer(self, talking: object, question: str, say: Say) -> str | None:
        assert talking is self
        self.questions.append(question)
        if self.failure is not None:
            raise self.failure
        say("hm", True)
        say(question.upper(), False)
        return None if self.is_cut else question.upper()


@pytest.fixture
def talking(monkeypatch: pytest.MonkeyPatch) -> Conversation:
    made = Conversation()
    target = SimpleNamespace(url="http://h:1")
    monkeypatch.setattr(chat, "target", lambda server: target)
    monkeypatch.setattr(chat, "begin", lambda *options: made)
    monkeypatch.setattr(conversation, "answer", made.answer)
    return made


def piped(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    stream = SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stream)


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> None:
    left = iter(lines)

    def read(prompt: str) -> str:
        assert prompt == "> "
        line = next(left, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", read)


def test_a_question_from_a_pipe_is_answered_without_the_thoughts(
    talking: Conversation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped(monkeypatch, " why\xff?\n".encode("latin-1"))
    assert run(["chat", "http://h"]) == 0
    assert capsys.readouterr() == ("WHY\ufffd?\n", "")
    assert talking.questions == ["why\ufffd?"]


def test_a_pipe_without_a_question_is_refused(
    talking: Conversation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped(monkeypatch, b" \n")
    assert run(["chat", "http://h"]) == 2
    assert (capsys.readouterr().out, talking.questions) == ("", [])


def test_an_answer_that_was_cut_ends_a_pipe_with_130(
    talking: Conversation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talking.is_cut = True
    piped(monkeypatch, b"why")
    assert run(["chat", "http://h"]) == 130
    assert capsys.readouterr() == ("WHY\n", "gaudi-launch: Interrupted.\n")


def test_a_server_that_fails_ends_a_pipe_with_its_error(
    talking: Conversation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talking.failure = ServerError("protocol", "x", 500)
    piped(monkeypatch, b"why")
    code = run(["chat", "http://h"])
    out, err = capsys.readouterr()
    assert (code != 0, out, "Traceback" in err, "http://h:1" in err) == (True, "", False, True)


def test_a_conversation_at_a_terminal(
    talking: Conversation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "one", "", "/reset", "/what is this", KeyboardInterrupt, "two ")
    assert run(["chat", "http://h"]) == 0
    out, err = capsys.readouterr()
    assert (talking.questions, talking.resets, err) == (["one", "two"], 1, "")
    begin, *rest = out.splitlines()
    assert "m" in begin and "http://h:1" in begin
    assert [line for line in rest if line in ("ONE", "TWO")] == ["ONE", "TWO"]
    assert "/what" in out and "is this" not in out


def lines_of(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line)


def test_a_failure_at_a_terminal_ends_only_its_answer(
    talking: Conversation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talking.failure = ServerError("protocol", "[full]", 500)
    typed(monkeypatch, "one", "two")
    assert run(["chat", "http://h"]) == 0
    out, err = capsys.readouterr()
    assert (talking.questions, err, "Traceback" in out) == (["one", "two"], "", False)
    assert len([*lines_of(out)]) == 3


def test_thoughts_are_shown_apart_from_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    write = chat._Writer(thoughts=True)
    for words, thought in (("a", True), ("b", True), ("c", False), ("d", False), ("e", True)):
        write(words, thought)
    assert capsys.readouterr().out == "ab\n\ncde"
    quiet = chat._Writer(thoughts=False)
    quiet("a", True)
    quiet("c", False)
    assert capsys.readouterr().out == "c"


@pytest.mark.parametrize("command", ["chat", "webui"])
def test_the_options_of_a_chat_reach_it(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def begin(found: Target, *options: Any) -> Any:
        seen.append((found.url, *options))
        raise KeyboardInterrupt

    for module in (chat, webui):
        monkeypatch.setattr(module, "begin", begin)
    options = ["--system", "s", "--model", "m", "--max-tokens", "5", "--temperature", "0.5"]
    assert run([command, "http://h", *options, "--timeout", "9"]) == 130
    assert run([command, "http://h"]) == 130
    assert seen == [
        ("http://h", ChatOptions("s", 5, 0.5, 9.0), "m"),
        ("http://h", ChatOptions(timeout=120.0), None),
    ]
