"""A conversation: what is sent again, what is forgotten, and Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from gaudi_launch.bench import conversation, protocols, server
from gaudi_launch.bench.client import Client, ServerError
from gaudi_launch.bench.conversation import Conversation, answer, begin
from gaudi_launch.bench.protocols import ModelAnswer, Prompt

SERVED = server.ServerFacts("m", ("m",))
CLIENT = Client("http://a:1")
PARIS = ModelAnswer("Paris", 7, 1, True, "stop", (0.1,), 0.2, "hm")


def talk(**more: Any) -> Conversation:
    return Conversation(CLIENT, SERVED, more.pop("form", "chat"), **more)


class Model:
    """Answers in place of a server: with pieces, then an answer or an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Any] = []
        self.pieces: list[tuple[str, bool]] = []
        self.end: ModelAnswer | BaseException = PARIS
        monkeypatch.setattr(protocols, "stream", self.stream)

    async def stream(self, *asked: Any) -> ModelAnswer:
        self.asked.append(asked[:-1])
        for text, thought in self.pieces:
            asked[-1](text, thought)
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    return Model(monkeypatch)


def user(words: str) -> protocols.Message:
    return {"role": "user", "content": words}


def test_each_message_is_sent_with_those_before(model: Model) -> None:
    chat = talk(system="be brief", tokens=9, temperature=0.5)
    seen: list[tuple[str, bool]] = []
    model.pieces = [("hm", True), ("Paris", False)]
    for words in ("one", "two"):
        found = asyncio.run(chat.say(words, lambda text, thought: seen.append((text, thought))))
        assert found == PARIS
    assistant = {"role": "assistant", "content": "Paris"}
    system = {"role": "system", "content": "be brief"}
    assert model.asked == [
        (CLIENT, "chat", Prompt((system, user("one")), 9, 0.5), "m"),
        (CLIENT, "chat", Prompt((system, user("one"), assistant, user("two")), 9, 0.5), "m"),
    ]
    assert seen == [("hm", True), ("Paris", False)] * 2
    assert chat.messages == [user("one"), assistant, user("two"), assistant]
    chat.reset()
    assert chat.messages == []


@pytest.mark.parametrize(
    ("form", "tokens", "sent"),
    [("chat", None, None), ("completions", None, 256), ("generate", None, 256), ("generate", 0, 0)],
)
def test_a_server_without_chat_is_given_a_length(
    form: protocols.Form, tokens: int | None, sent: int | None, model: Model
) -> None:
    asyncio.run(talk(form=form, tokens=tokens).say("one", lambda *_: None))
    assert model.asked == [(CLIENT, form, Prompt((user("one"),), sent, None), "m")]


def test_a_message_without_an_answer_is_forgotten(model: Model) -> None:
    chat = talk()
    model.pieces = [("Pa", False)]
    model.end = ServerError("cut", "why")
    with pytest.raises(ServerError):
        asyncio.run(chat.say("one", lambda *_: None))
    assert chat.messages == []


def test_the_part_before_a_cancellation_is_kept_without_thoughts(model: Model) -> None:
    chat = talk(messages=[user("zero")])
    model.end = asyncio.CancelledError()
    model.pieces = [("hm", True)]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(chat.say("one", lambda *_: None))
    assert chat.messages == [user("zero")]
    model.pieces = [("hm", True), ("Pa", False), ("r", False)]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(chat.say("two", lambda *_: None))
    assert chat.messages == [user("zero"), user("two"), {"role": "assistant", "content": "Par"}]


def test_an_answer_is_waited_for(model: Model) -> None:
    assert answer(talk(), "one", lambda *_: None) == PARIS


def test_control_c_ends_the_answer_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stream(*asked: Any) -> ModelAnswer:
        asked[-1]("Pa", False)
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)
        return PARIS

    monkeypatch.setattr(protocols, "stream", stream)
    before = signal.getsignal(signal.SIGINT)
    chat = talk()
    assert answer(chat, "one", lambda *_: None) is None
    assert chat.messages == [user("one"), {"role": "assistant", "content": "Pa"}]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_conversation_begins_with_the_form_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def look(*words: Any) -> server.ServerFacts:
        asked.append(words)
        return SERVED

    async def pick_form(*words: Any) -> protocols.Form:
        asked.append(words)
        return "generate"

    monkeypatch.setattr(server, "look", look)
    monkeypatch.setattr(server, "pick_form", pick_form)
    found = asyncio.run(begin(CLIENT, "mine", "be brief", 9, 0.5))
    assert found == Conversation(CLIENT, SERVED, "generate", "be brief", 9, 0.5)
    assert asked == [(CLIENT, "mine"), (CLIENT, SERVED)]


def test_line_ends_and_tabs_stay() -> None:
    assert conversation.clean("a\r\nb\tc\rd\x00e\x1b[2J\x9f\u2067") == "a\nb\tcde[2J"
