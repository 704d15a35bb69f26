"""Requests in each form, and answers from bytes that are known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.bench import protocols
from gaudi_launch.bench.client import Reply, ServerError
from gaudi_launch.bench.protocols import ModelAnswer, Prompt, ask_one, body, refused, shown
from tests.support.scripted_client import Piece, ScriptedClient, sent_event

MESSAGES = ({"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"})
DONE = b"data: [DONE]\n\n"


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every request begin at 10 s and end at 12 s."""
    moments = iter([10.0, 12.0])
    clock = SimpleNamespace(perf_counter=lambda: next(moments))
    monkeypatch.setattr(protocols, "time", clock)


def test_a_chat_has_its_messages() -> None:
    assert body("chat", Prompt(MESSAGES, 5), "m", stream=False) == {
        "model": "m",
        "max_tokens": 5,
        "temperature": 0.0,
        "messages": list(MESSAGES),
    }
    assert body("chat", Prompt(MESSAGES, None, None, True), "m", stream=True) == {
        "model": "m",
        "ignore_eos": True,
        "messages": list(MESSAGES),
        "stream": True,
        "stream_options": {"include_usage": True},
    }


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
                    {
                        "message": {"content": "Paris", "reasoning": "hm"},
                        "finish_reason": "length",
                    }
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
    assert found == ModelAnswer("Paris", 7, 3, True, "length", (), 0.5, thought)
    assert client.asked == [(path, body(form, ask_one("hi", 5), "m", stream=False))]


def test_an_answer_without_counts_has_no_tokens() -> None:
    client = ScriptedClient(lambda *_: (200, {"choices": [{"message": {"content": "a"}}]}))
    found = asyncio.run(protocols.whole(client, "chat", ask_one("hi", 5), "m"))
    assert found == ModelAnswer("a", None, 0, False, "", (), 0.5)


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


def test_a_chat_arrives_piece_by_piece() -> None:
    seen: list[tuple[str, bool]] = []
    found = streamed(
        "chat",
        (10.25, delta(role="assistant", content="")),
        (10.5, delta(reasoning_content="hm")),
        (11.0, delta(content="Pa") + delta(content="ris")),
        (11.25, sent_event({"choices": [{"delta": {}, "finish_reason": "stop"}]})),
        (11.5, sent_event({"choices": [], "usage": USAGE})),
        (11.75, DONE),
        (11.9, delta(content="never read")),
        show=lambda text, thought: seen.append((text, thought)),
    )
    assert found == ModelAnswer("Paris", 7, 3, True, "stop", (0.5, 1.0, 1.0), 2.0, "hm")
    assert (found.first, seen) == (0.5, [("hm", True), ("Pa", False), ("ris", False)])


def test_the_last_counts_of_a_stream_are_the_answers() -> None:
    early = {"choices": [{"text": "a"}], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    later = {"choices": [{"text": "b"}], "usage": {"completion_tokens": 4}}
    found = streamed(
        "completions",
        (10.5, sent_event(early)),
        (11.0, sent_event(later)),
        (11.5, sent_event({"choices": [{"text": ""}], "usage": None})),
        (11.5, DONE),
    )
    assert found == ModelAnswer("ab", 7, 4, True, "", (0.5, 1.0), 2.0)


def test_without_counts_pieces_are_tokens() -> None:
    found = streamed("chat", (10.5, delta(content="a")), (11.0, delta(content="b") + DONE))
    assert found == ModelAnswer("ab", None, 2, False, "", (0.5, 1.0), 2.0)
    assert ModelAnswer("", None, 0, False, "", (), 1.0).first is None


def test_tgi_ends_with_its_details_and_marks_special_tokens() -> None:
    found = streamed(
        "generate",
        (10.5, sent_event({"token": {"text": "Pa", "special": False}})),
        (11.0, sent_event({"token": {"text": "ris"}})),
        (11.5, sent_event({"token": {"text": "</s>", "special": True}, **GENERATED})),
    )
    assert found == ModelAnswer("Paris", 7, 3, True, "length", (0.5, 1.0), 2.0)


def test_tgi_without_details_ends_with_its_complete_text() -> None:
    last = {"token": {"text": "ris"}, "generated_text": "Paris", "details": None}
    found = streamed(
        "generate", (10.5, sent_event({"token": {"text": "Pa"}})), (11.0, sent_event(last))
    )
    assert found == ModelAnswer("Paris", None, 2, False, "end", (0.5, 1.0), 2.0)


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


def test_a_refused_stream_has_the_servers_words() -> None:
    with pytest.raises(ServerError) as caught:
        streamed("chat", (10.5, b'{"detail": '), (10.6, b'"not here"}'), status=404)
    assert (caught.value.kind, caught.value.detail, caught.value.status) == (
        "status",
        "not here",
        404,
    )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b'{"error": {"message": " a "}}', "a"),
        (b'{"error": {"message": ""}, "message": "b"}', "b"),
        (b'{"error": "c"}', "c"),
        (b'{"detail": "d"}', "d"),
        (b'{"detail": ["d"]}', '{"detail": ["d"]}'),
        (b"no\n json\x1b[2J", "no json?[2J"),
        (b'{"message": "' + b"x" * 600 + b'"}', "x" * 500),
        (b"y" * 300, "y" * 200),
    ],
)
def test_the_message_of_a_refusal(document: bytes, words: str) -> None:
    found = refused(Reply(400, document, 0.1))
    assert (found.kind, found.status) == ("status", 400)
    assert found.detail == words


def test_an_answer_is_shown_on_one_line() -> None:
    assert shown(b" a\n\tb \xff") == "a b \ufffd"


@pytest.mark.parametrize("value", [True, -1, 10**9, 1.0, "5", None])
def test_only_a_number_of_tokens_counts(value: Any) -> None:
    assert protocols.count_of({"n": value}, "n") is None
    assert protocols.count_of({"n": 0}, "n") == 0


def test_the_first_model_is_the_first_with_a_name() -> None:
    document = {"data": ["x", {"id": 5}, {"id": "a", "b": 1}, {"id": "c"}]}
    assert protocols.first_model(document) == {"id": "a", "b": 1}
    assert protocols.first_model({"data": {}}) is None
    assert protocols.first_model([]) is None
