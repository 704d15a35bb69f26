"""The requests by which a server is tested, and what is made of each answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gaudi_launch.services import probe as module
from gaudi_launch.services.probe import (
    ProbeResult,
    Readiness,
    not_served,
    pooled_question,
    probe,
    probe_health,
    true_status,
)

Page = tuple[int, object]
URL = "http://a:1"
KEY = "hunter2"
MODELS = {"data": [{"id": "m"}, {"id": "adapter"}]}
CHOICES = {"choices": [{"text": "2"}]}
GOOD: dict[str, Page] = {
    "/health": (200, {}),
    "/v1/models": (200, MODELS),
    "/v1/completions": (200, CHOICES),
    "/v1/chat/completions": (200, CHOICES),
}
TGI: dict[str, Page] = {
    "/health": (200, {}),
    "/info": (200, {"model_id": "me/Small"}),
    "/generate": (200, {"generated_text": ""}),
}
COMPLETION = {"model": "m", "prompt": "1", "max_tokens": 1, "temperature": 0}
CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "1"}],
    "max_tokens": 1,
    "temperature": 0,
}
GENERATE = {"inputs": "1", "parameters": {"max_new_tokens": 1}}


class Server:
    """A server by its pages; it keeps what it was asked."""

    def __init__(self, pages: dict[str, Page]) -> None:
        self.pages = pages
        self.asked: list[tuple[Any, ...]] = []

    def ask(
        self,
        url: str,
        timeout: float,
        api_key: str | None = None,
        question: dict[str, Any] | None = None,
    ) -> ProbeResult:
        path = url.removeprefix(URL)
        self.asked.append((path, timeout, api_key, question))
        status, document = self.pages.get(path, (404, {}))
        if status == 0:
            return ProbeResult(0, b"", str(document))
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return ProbeResult(status, body)


def answered(
    monkeypatch: pytest.MonkeyPatch, pages: dict[str, Page], **options: Any
) -> tuple[Readiness, list[tuple[Any, ...]]]:
    server = Server(pages)
    monkeypatch.setattr(module, "ask", server.ask)
    return probe(URL, **options), server.asked


def test_vllm_is_asked_for_its_health_its_models_a_completion_and_a_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, asked = answered(monkeypatch, GOOD, timeout=90.0, api_key=KEY)
    assert found == Readiness(True, "ready", "", "m", "/v1/completions", "")
    # a first completion and chat may compile a graph
    assert asked == [
        ("/health", 5.0, KEY, None),
        ("/v1/models", 10.0, KEY, None),
        ("/v1/completions", 90.0, KEY, COMPLETION),
        ("/v1/chat/completions", 60.0, KEY, CHAT),
    ]
    _, short = answered(monkeypatch, GOOD, timeout=2.0)
    assert [each[1:3] for each in short] == [(2.0, None)] * 4


def test_tgi_is_asked_for_its_model_and_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = answered(monkeypatch, TGI, timeout=90.0, api_key=KEY, tgi=True)
    assert found == Readiness(True, "ready", "", "me/Small", "/generate", "")
    assert asked == [
        ("/health", 5.0, KEY, None),
        ("/info", 10.0, KEY, None),
        ("/generate", 90.0, KEY, GENERATE),
    ]
    # a server without /v1/models is asked in the same way
    again, more = answered(monkeypatch, TGI, timeout=90.0, api_key=KEY)
    assert (again, more[2:]) == (found, asked[1:])


def test_a_look_without_a_completion_asks_for_the_model_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, asked = answered(monkeypatch, GOOD, complete=False)
    assert found == Readiness(True, "ready", "", "m")
    assert [each[0] for each in asked] == ["/health", "/v1/models"]
    found, asked = answered(monkeypatch, TGI, complete=False, tgi=True)
    assert found == Readiness(True, "ready", "", "me/Small")
    assert [each[0] for each in asked] == ["/health", "/info"]
    nameless = {**TGI, "/info": (200, {"version": "3"})}
    assert answered(monkeypatch, nameless, tgi=True)[0] == Readiness(
        True, "ready", "", None, "/generate"
    )


@pytest.mark.parametrize(
    ("pages", "options", "expected"),
    [
        ({"/health": (0, "timed out")}, {}, Readiness(False, "connect", "timed out")),
        ({"/health": (503, {})}, {}, Readiness(False, "health", "/health: 503")),
        ({"/v1/models": (0, "reset")}, {}, Readiness(False, "models", "reset")),
        ({"/v1/models": (200, {"data": []})}, {}, Readiness(False, "models", "/v1/models: 200")),
        ({"/v1/models": (200, [])}, {}, Readiness(False, "models", "/v1/models: 200")),
        ({"/v1/models": (500, MODELS)}, {}, Readiness(False, "models", "/v1/models: 500")),
        ({}, {"names": ("x",)}, Readiness(False, "other", "/v1/models: m", "m")),
        (
            {},
            {"names": ("x", "adapter")},
            Readiness(True, "ready", "", "m", "/v1/completions"),
        ),
        (
            {"/v1/completions": (0, "timed out")},
            {},
            Readiness(False, "completion", "timed out", "m"),
        ),
        (
            {"/v1/completions": (200, {"choices": []})},
            {},
            Readiness(False, "completion", "/v1/completions: 200", "m"),
        ),
        (
            {"/v1/completions": (200, b"garbage")},
            {},
            Readiness(False, "completion", "/v1/completions: 200", "m"),
        ),
        (
            {"/v1/completions": (500, CHOICES)},
            {},
            Readiness(False, "completion", "/v1/completions: 500", "m"),
        ),
    ],
)
def test_the_stage_that_was_reached_has_the_reason(
    monkeypatch: pytest.MonkeyPatch,
    pages: dict[str, Page],
    options: dict[str, Any],
    expected: Readiness,
) -> None:
    assert answered(monkeypatch, {**GOOD, **pages}, **options)[0] == expected


@pytest.mark.parametrize(
    ("pages", "options", "expected"),
    [
        ({"/info": (404, {})}, {}, Readiness(False, "models", "neither /v1/models nor /info")),
        ({"/info": (200, [])}, {}, Readiness(False, "models", "neither /v1/models nor /info")),
        ({"/info": (500, {})}, {}, Readiness(False, "models", "neither /v1/models nor /info")),
        ({}, {"names": ("x",)}, Readiness(False, "other", "/info: me/Small", "me/Small")),
        # the last part counts, in any case
        ({}, {"names": ("/models/small/",)}, Readiness(True, "ready", "", "me/Small", "/generate")),
        (
            {"/generate": (200, {"generated_text": 3})},
            {},
            Readiness(False, "completion", "/generate: 200", "me/Small"),
        ),
        (
            {"/generate": (424, {"generated_text": "a"})},
            {},
            Readiness(False, "completion", "/generate: 424", "me/Small"),
        ),
    ],
)
def test_the_stage_that_tgi_reached_has_the_reason(
    monkeypatch: pytest.MonkeyPatch,
    pages: dict[str, Page],
    options: dict[str, Any],
    expected: Readiness,
) -> None:
    assert answered(monkeypatch, {**TGI, **pages}, tgi=True, **options)[0] == expected


@pytest.mark.parametrize(
    ("pages", "path", "expected"),
    [
        (
            {"/v1/embeddings": (200, {"data": [1]})},
            "/v1/embeddings",
            Readiness(True, "ready", "", "m", "/v1/embeddings"),
        ),
        (
            {"/rerank": (200, {"results": [1]})},
            "/rerank",
            Readiness(True, "ready", "", "m", "/rerank"),
        ),
        (
            {"/v1/embeddings": (501, {}), "/rerank": (405, {}), "/pooling": (200, {"data": [1]})},
            "/pooling",
            Readiness(True, "ready", "", "m", "/pooling"),
        ),
        (
            {"/v1/embeddings": (500, {"data": [1]})},
            "/v1/embeddings",
            Readiness(False, "completion", "/v1/embeddings: 500", "m"),
        ),
        (
            {"/v1/embeddings": (200, {"data": []})},
            "/v1/embeddings",
            Readiness(False, "completion", "/v1/embeddings: 200", "m"),
        ),
        ({}, "/pooling", Readiness(True, "ready", "no completions", "m")),
    ],
)
def test_a_model_without_completions_is_asked_for_the_first_task_that_it_knows(
    monkeypatch: pytest.MonkeyPatch, pages: dict[str, Page], path: str, expected: Readiness
) -> None:
    listed = {"/health": (200, {}), "/v1/models": (200, MODELS)}
    found, asked = answered(monkeypatch, {**listed, **pages}, timeout=9.0, api_key=KEY)
    task = {"/v1/embeddings": "embed", "/rerank": "rerank", "/pooling": "pool"}[path]
    assert (found, asked[-1]) == (
        expected,
        (path, 9.0, KEY, pooled_question(task, "m", ("1", "1"))),
    )


def test_the_request_of_each_task_names_model_and_texts() -> None:
    both = {"model": "m", "input": ["a", "b"]}
    assert pooled_question("embed", "m", ("a", "b")) == both
    assert pooled_question("pool", "m", ("a", "b")) == both
    assert pooled_question("rerank", "m", ("a", "b", "c")) == {
        "model": "m",
        "query": "a",
        "documents": ["b", "c"],
    }


@pytest.mark.parametrize(
    ("status", "body", "no_chat"),
    [
        (200, {}, ""),
        (399, {}, ""),
        (0, "timed out", ""),
        (400, {"error": {"message": " no template\n"}}, "400 no template"),
        (400, {"error": " ", "message": "a\tb"}, "400 a b"),
        (422, {"detail": "d" * 301}, "422 " + "d" * 300),
        (500, {"error": {"code": 3}, "detail": [1]}, "500"),
        (500, [1], "500"),
    ],
)
def test_the_sentence_with_which_a_chat_is_refused_is_kept(
    monkeypatch: pytest.MonkeyPatch, status: int, body: object, no_chat: str
) -> None:
    found, _ = answered(monkeypatch, {**GOOD, "/v1/chat/completions": (status, body)})
    expected = f"/v1/chat/completions: {no_chat}" if no_chat else ""
    assert found == Readiness(True, "ready", "", "m", "/v1/completions", expected)


@pytest.mark.parametrize(
    ("status", "body", "refused"),
    [
        (404, b"", True),
        (405, b"", True),
        (501, b"", True),
        (400, b"The model does not support Completions", True),
        (400, b"bad request", False),
        (500, b"does not support", False),
        (200, b"does not support", False),
    ],
)
def test_a_request_that_the_model_does_not_support_is_known(
    status: int, body: bytes, refused: bool
) -> None:
    assert not_served(status, body) is refused


def error(code: object, kind: str = "error") -> bytes:
    return json.dumps({"object": kind, "code": code}).encode()


@pytest.mark.parametrize(
    ("status", "body", "intended"),
    [
        (200, error(400), 400),
        (200, error(599), 599),
        (200, error(600), 200),
        (200, error(399), 200),
        (200, error("400"), 200),
        (200, error(400, "list"), 200),
        (500, error(400), 500),
        (200, b'["error"', 200),
        (200, b'["error"]', 200),
        (200, b" " * 100 + error(400), 200),
    ],
)
def test_an_error_that_came_with_200_has_its_own_code(
    status: int, body: bytes, intended: int
) -> None:
    assert true_status(status, body) == intended


def test_a_gateway_is_asked_for_its_health_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    answers = [ProbeResult(200, b""), ProbeResult(503, b""), ProbeResult(0, b"", "refused")]

    def ask(*words: Any, **more: Any) -> ProbeResult:
        asked.append((*words, more))
        return answers[len(asked) - 1]

    monkeypatch.setattr(module, "ask", ask)
    assert [probe_health(URL), probe_health(URL, 2.0), probe_health(URL)] == [
        Readiness(True, "ready", "", None, "/health"),
        Readiness(False, "health", "/health: 503"),
        Readiness(False, "connect", "refused"),
    ]
    assert asked == [
        (f"{URL}/health", 5.0, {"verify": False}),
        (f"{URL}/health", 2.0, {"verify": False}),
        (f"{URL}/health", 5.0, {"verify": False}),
    ]


def test_an_answer_has_its_document_or_none() -> None:
    assert ProbeResult(200, b'{"a": 1}').document == {"a": 1}
    assert ProbeResult(200, b"<html>").document is None
    assert ProbeResult(500, b"").why("/a") == "/a: 500"
    assert ProbeResult(0, b"", "reset").why("/a") == "reset"
