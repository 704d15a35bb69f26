"""A conversation: what is sent again, what is forgotten, and Ctrl-C."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gaudi_launch.extensions.bench import protocols, server
from gaudi_launch.extensions.bench.client import Client
from gaudi_launch.extensions.bench.conversation import Conversation
from gaudi_launch.extensions.bench.protocols import ModelAnswer, Prompt

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
