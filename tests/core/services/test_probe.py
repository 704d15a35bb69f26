"""Readiness against real small servers: hanging, failing, lying and garbage ones."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.services import probe as module
from gaudi_launch.core.services.addresses import holder, port_free
from gaudi_launch.core.services.probe import Readiness, probe, probe_health
from gaudi_launch.core.services.server_answers import true_status
from gaudi_launch.core.services.server_request import ProbeResult
from tests.support.http_answers import server
from tests.support.waiting import unused_port

Page = tuple[int, object]
MODELS = {"data": [{"id": "m"}]}
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
URL, KEY = "http://a:1", "hunter2"
NO_INFO: tuple[Page, ...] = ((404, {}), (200, []), (500, {}))
BAD_TEXTS: tuple[Page, ...] = (
    *((500, CHOICES), (200, {"choices": []})),
    *((200, b"garbage"), (200, {"object": "error"})),
)
GENERATE = {"inputs": "1", "parameters": {"max_new_tokens": 1}}


def table(**changes: Page) -> dict[str, Page]:
    return {**GOOD, **{"/" + name.replace("_", "/"): answer for name, answer in changes.items()}}


TEXT, INFO = (200, {"generated_text": ""}), (200, {"model_id": "me/Small"})
NOT_IT: Page = (400, {"message": "The model does not support Completions API"})
# the forks say so with status 200
NOT_SAID: Page = (200, {"object": "error", "message": "does not support this", "code": 400})
NOT_BUILT: Page = (501, {"error": {"message": "The model does not support Embeddings API"}})
VECTOR: Page = (200, {"data": [{"index": 0, "embedding": [1.0]}]})
SCORES: Page = (200, {"results": [{"index": 0, "relevance_score": 0.5}]})
NONE: Page = (404, {"detail": "Not Found"})
READY = Readiness(True, "ready", "", "m", "/v1/completions")


def ready(path: str, model: str | None = "m", detail: str = "") -> Readiness:
    return Readiness(True, "ready", detail, model, path)


def tgi(generate: Page = TEXT, info: Page = INFO) -> dict[str, Page]:
    return {"v1_models": NONE, "info": info, "generate": generate}


def unready(stage: str, detail: str, model: str | None = None) -> Readiness:
    return Readiness(False, stage, detail, model)


@pytest.mark.parametrize(
    ("pages", "options", "expected"),
    [
        ({}, {}, READY),
        ({}, {"complete": False}, ready("")),
        ({"health": (503, {})}, {}, unready("health", "/health: 503")),
        ({"v1_models": (200, b"garbage")}, {}, unready("models", "/v1/models: 200")),
        ({"v1_models": (200, {"data": []})}, {}, unready("models", "/v1/models: 200")),
        ({"v1_models": (200, [])}, {}, unready("models", "/v1/models: 200")),
        ({"v1_models": (500, MODELS)}, {}, unready("models", "/v1/models: 500")),
        *(
            (
                {"v1_completions": page},
                {},
                unready("completion", f"/v1/completions: {page[0]}", "m"),
            )
            for page in BAD_TEXTS
        ),
        ({"v1_completions": NONE}, {}, ready("", detail="no completions")),
        ({"v1_completions": NOT_IT}, {}, ready("", detail="no completions")),
        # TGI
        (tgi(), {}, ready("/generate", "me/Small")),
        (tgi(), {"tgi": True, "complete": False}, ready("", "me/Small")),
        (tgi(info=(200, {"version": "3"})), {"tgi": True}, ready("/generate", None)),
        *(
            (tgi(page), {}, unready("completion", f"/generate: {page[0]}", "me/Small"))
            for page in ((200, {"generated_text": 3}), (424, {"generated_text": "a"}))
        ),
        *(
            (tgi(info=page), {}, unready("models", "neither /v1/models nor /info"))
            for page in NO_INFO
        ),
        # only a server of the expected name
        ({}, {"names": ("m",)}, READY),
        ({}, {"names": ("x", "m")}, READY),
        ({}, {"names": ("Small",)}, unready("other", "/v1/models: m", "m")),
        ({}, {"names": ("/models/m",)}, unready("other", "/v1/models: m", "m")),
        ({"v1_models": (200, {"data": [{"id": "m"}, {"id": "x"}]})}, {"names": ("x",)}, READY),
        (
            *(tgi(), {"tgi": True, "names": ("Other",)}),
            unready("other", "/info: me/Small", "me/Small"),
        ),
        (tgi(), {"tgi": True, "names": ("/data/small",)}, ready("/generate", "me/Small")),
        # models that write nothing are asked what they are for
        ({"v1_completions": NONE, "v1_embeddings": VECTOR}, {}, ready("/v1/embeddings")),
        ({"v1_completions": NOT_IT, "v1_embeddings": VECTOR}, {}, ready("/v1/embeddings")),
        ({"v1_completions": NOT_SAID, "v1_embeddings": VECTOR}, {}, ready("/v1/embeddings")),
        (
            {"v1_completions": NOT_BUILT, "v1_embeddings": NOT_BUILT, "rerank": SCORES},
            *({}, ready("/rerank")),
        ),
        ({"v1_completions": NONE, "pooling": VECTOR}, {}, ready("/pooling")),
        # the first question is the one that killed an engine that said it was well
        (
            {"v1_completions": NONE, "v1_embeddings": (500, {}), "pooling": VECTOR},
            *({}, unready("completion", "/v1/embeddings: 500", "m")),
        ),
        (
            {"v1_completions": NONE, "rerank": (200, {"results": []})},
            *({}, unready("completion", "/rerank: 200", "m")),
        ),
        (
            {"v1_completions": NONE, "v1_embeddings": (200, {"data": []})},
            *({}, unready("completion", "/v1/embeddings: 200", "m")),
        ),
    ],
)
def test_how_far_it_gets(
    pages: dict[str, Page], options: dict[str, Any], expected: Readiness
) -> None:
    with server(table(**pages)) as (url, _):
        assert probe(url, **options) == expected


def test_nobody_there_and_nobody_who_speaks_http() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        assert probe(f"http://127.0.0.1:{port}", timeout=0.5).stage == "connect"
        silent.listen()

        def rubbish() -> None:
            connection, _ = silent.accept()
            connection.recv(100)
            connection.sendall(b"\x00\x01 no http\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=rubbish)
        thread.start()
        assert probe(f"http://127.0.0.1:{port}").stage == "connect"
        thread.join()


def test_ports() -> None:
    port = unused_port()
    with socket.create_server(("127.0.0.1", port)):
        assert not port_free("127.0.0.1", port)
        assert "python" in holder(port) or "pytest" in holder(port)
    assert port_free("127.0.0.1", port)
    assert holder(port) == "-"


@pytest.mark.root
def test_the_user_is_named_where_the_process_is_not_visible() -> None:
    hidden = "import os, psutil; from gaudi_launch.core.services import addresses; os.setuid(65534)"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = f"{hidden}; print(addresses.holder({taken.getsockname()[1]}))"
        done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("root\n", "")


def test_a_gateway_is_ready_when_its_health_answers() -> None:
    with server(table(v1_models=(401, {}))) as (url, _):
        assert probe_health(url) == Readiness(True, "ready", "", None, "/health")
    with server(table(health=(503, {}))) as (url, _):
        assert probe_health(url) == Readiness(False, "health", "/health: 503")
    assert probe_health(f"http://127.0.0.1:{unused_port()}").stage == "connect"


def test_a_redirect_does_not_carry_the_key_away() -> None:
    with server(GOOD) as (there, asked), server({"/health": (307, f"{there}/health")}) as (here, _):
        assert probe(here, api_key="sk-secret") == Readiness(False, "health", "/health: 307")
    assert asked == []


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 70000), ("127.0.0.1", -1), ("no.such.host.invalid", 80)]
)
def test_where_no_server_can_listen(host: str, port: int) -> None:
    with pytest.raises(OSError, match=r"port|not known|resolution|Name"):
        port_free(host, port)


@pytest.mark.parametrize(
    ("chat", "said"),
    [
        ((400, {"message": "could not locate think tokens"}), "400 could not locate think tokens"),
        ((500, {"error": {"message": "odd\x1b[31m"}}), "500 odd [31m"),
        ((404, {"detail": "Not Found"}), "404 Not Found"),
        ((422, []), "422"),
        ((400, {"error": " ", "message": "a\tb"}), "400 a b"),
        ((422, {"detail": "d" * 301}), "422 " + "d" * 300),
        ((500, {"error": {"code": 3}, "detail": [1]}), "500"),
    ],
)
def test_a_refused_chat_is_known_when_it_is_ready(chat: tuple[int, object], said: str) -> None:
    pages = {**GOOD, "/v1/chat/completions": chat}
    with server(pages) as (url, _):
        found = probe(url)
    assert found == replace(READY, no_chat=f"/v1/chat/completions: {said}")


def test_tgi_is_asked_for_its_model_and_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def ask(url: str, timeout: float, key: str | None, question: object = None) -> ProbeResult:
        path = url.removeprefix(URL)
        asked.append((path, timeout, key, question))
        status, document = TGI.get(path, (404, {}))
        return ProbeResult(status, json.dumps(document).encode())

    monkeypatch.setattr(module, "ask", ask)
    found = probe(URL, timeout=90.0, api_key=KEY, tgi=True)
    assert found == ready("/generate", "me/Small")
    assert asked == [
        ("/health", 5.0, KEY, None),
        ("/info", 10.0, KEY, None),
        ("/generate", 90.0, KEY, GENERATE),
    ]
    # a server without /v1/models is asked in the same way
    assert probe(URL, timeout=90.0, api_key=KEY) == found
    assert asked[5:] == asked[1:3]


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


def test_an_answer_has_its_document_or_none() -> None:
    assert ProbeResult(200, b'{"a": 1}').document == {"a": 1}
    assert ProbeResult(200, b"<html>").document is None
    assert ProbeResult(500, b"").why("/a") == "/a: 500"
    assert ProbeResult(0, b"", "reset").why("/a") == "reset"
