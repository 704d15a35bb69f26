"""Requests in each form, and answers from bytes that are known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.extensions.bench import protocols
from gaudi_launch.extensions.bench.client import ServerError
from gaudi_launch.extensions.bench.protocols import (
    Events,
    ModelAnswer,
    Prompt,
    TooLong,
    ask_one,
    body,
)
from tests.support.scripted_client import Piece, ScriptedClient, sent_event

MESSAGES = ({"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"})


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every request begin at 10 s and end at 12 s."""
    moments = iter([10.0, 12.0])
    clock = SimpleNamespace(perf_counter=lambda: next(moments))
    monkeypatch.setattr(protocols, "time", clock)


def test_the_other_forms_have_one_text() -> None:
    assert body("completions", Prompt(MESSAGES, 5), "m", stream=False) == {
        "model": "m",
        "max_tokens": 5,
        "temperature": 0.0,
        "prompt": "be brief\nhi",
    }
    assert body("generate", Prompt(MESSAGES, 5), "m", stream=True) == {
        "inputs": "be brief\nhi",
        "parameters": {"details": True, "max_new_tokens": 5},
    }
    assert body("generate", Prompt(MESSAGES, None, 0.5), "m", stream=False) == {
        "inputs": "be brief\nhi",
        "parameters": {"details": True, "do_sample": True, "temperature": 0.5},
    }


USAGE = {"prompt_tokens": 7, "completion_tokens": 3}
GENERATED = {
    "generated_text": "Paris",
    "details": {"generated_tokens": 3, "finish_reason": "length", "input_length": 7},
}


@pytest.mark.parametrize(
    ("form", "path", "document", "thought"),
    [
        (
            "chat",
            "/v1/chat/completions",
            {
                "choices": [
                    {"message": {"content": "Paris", "reasoning": "hm"}, "finish_reason": "length"}
                ],
                "usage": USAGE,
            },
            "hm",
        ),
        (
            "completions",
            "/v1/completions",
            {"choices": [{"text": "Paris", "finish_reason": "length"}], "usage": USAGE},
            "",
        ),
        ("generate", "/generate", GENERATED, ""),
        ("generate", "/generate", [GENERATED], ""),
    ],
)
def test_an_answer_in_one_piece(
    form: protocols.Form, path: str, document: Any, thought: str
) -> None:
    client = ScriptedClient(lambda *_: (200, document))
    found = asyncio.run(protocols.whole(client, form, ask_one("hi", 5), "m"))
    assert found == ModelAnswer("Paris", thought, 7, 3, "length", (), 0.5)
    assert client.asked == [(path, body(form, ask_one("hi", 5), "m", stream=False))]


@pytest.mark.parametrize(
    ("form", "status", "document", "error"),
    [
        ("chat", 503, {"message": "dead"}, ("status", "dead", 503)),
        ("chat", 200, {"error": "bad"}, ("protocol", '{"error": "bad"}', 0)),
        # an error next to an answer is an error
        (
            "completions",
            200,
            {"choices": [{"text": "a"}], "error": 1},
            ("protocol", '{"choices": [{"text": "a"}], "error": 1}', 0),
        ),
        ("chat", 200, {"choices": ["a"]}, ("protocol", '{"choices": ["a"]}', 0)),
        ("chat", 200, {"choices": [{}]}, ("protocol", '{"choices": [{}]}', 0)),
        ("generate", 200, [], ("protocol", "[]", 0)),
        ("generate", 200, {"generated_text": 1}, ("protocol", '{"generated_text": 1}', 0)),
    ],
)
def test_another_answer_is_an_error(
    form: protocols.Form, status: int, document: Any, error: tuple[str, str, int]
) -> None:
    client = ScriptedClient(lambda *_: (status, document))
    with pytest.raises(ServerError) as caught:
        asyncio.run(protocols.whole(client, form, ask_one("hi", 5), "m"))
    assert (caught.value.kind, caught.value.detail, caught.value.status) == error


def streamed(
    form: protocols.Form, *pieces: Piece, show: protocols.Show | None = None, status: int = 200
) -> ModelAnswer:
    client = ScriptedClient(streamed=pieces, status=status)
    answer = asyncio.run(protocols.stream(client, form, ask_one("hi", 5), "m", show))
    paths = {"chat": "/v1/chat/completions", "generate": "/generate_stream"}
    path = paths.get(form, "/v1/completions")
    assert client.asked == [(path, body(form, ask_one("hi", 5), "m", stream=True))]
    return answer


def delta(**parts: str) -> bytes:
    return sent_event({"choices": [{"delta": parts, "finish_reason": None}]})


def test_tgi_ends_with_its_details_and_marks_special_tokens() -> None:
    found = streamed(
        "generate",
        (10.5, sent_event({"token": {"text": "Pa", "special": False}})),
        (11.0, sent_event({"token": {"text": "ris"}})),
        (11.5, sent_event({"token": {"text": "</s>", "special": True}, **GENERATED})),
    )
    assert found == ModelAnswer("Paris", "", 7, 3, "length", (0.5, 1.0), 2.0)


def test_tgi_without_details_ends_with_its_complete_text() -> None:
    last = {"token": {"text": "ris"}, "generated_text": "Paris", "details": None}
    found = streamed(
        "generate", (10.5, sent_event({"token": {"text": "Pa"}})), (11.0, sent_event(last))
    )
    assert found == ModelAnswer("Paris", "", None, None, "end", (0.5, 1.0), 2.0)
    assert found.tokens == 2


@pytest.mark.parametrize(
    ("pieces", "kind", "detail"),
    [
        ((), "protocol", "no end of the stream"),
        ((delta(content="a"),), "cut", "no end of the stream"),
        ((b"data: junk\n\n",), "protocol", "junk"),
        ((sent_event({"error": {"message": "no memory"}}),), "protocol", "no memory"),
        ((sent_event({"choices": 5}),), "protocol", '{"choices": 5}'),
        ((b"data: " + b"x" * (5 << 20),), "protocol", "over 4194304 bytes"),
    ],
)
def test_a_broken_stream_is_an_error(pieces: tuple[bytes, ...], kind: str, detail: str) -> None:
    with pytest.raises(ServerError) as caught:
        streamed("chat", *((10.5, piece) for piece in pieces))
    assert (caught.value.kind, caught.value.detail) == (kind, detail)


MOST = 4 << 20


def test_many_short_lines_of_one_event_are_too_long_as_well() -> None:
    events = Events()
    assert events.feed(b"data: " + b"x" * (MOST - 10) + b"\n") == []
    assert events.feed(b"data: " + b"x" * 10 + b"\n") == []
    with pytest.raises(TooLong, match=f"over {MOST} bytes"):
        events.feed(b"data: x\n")
