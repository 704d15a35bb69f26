"""Readiness against real small servers: hanging, failing, lying and garbage ones."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gaudi_launch.services.probe import (
    ProbeResult,
    Readiness,
    ask,
    listener,
    port_free,
    probe,
    probe_health,
)
from tests.support.waiting import GENEROUS, unused_port

Answer = Callable[[str, dict[str, str]], tuple[int, object]]


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            status, document = answer(self.path, dict(self.headers))
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", str(document))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self.do_GET()

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(
        target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()


MODELS = {"data": [{"id": "m"}]}
CHOICES = {"choices": [{"text": "2"}]}
GOOD = {
    "/health": (200, {}),
    "/v1/models": (200, MODELS),
    "/v1/completions": (200, CHOICES),
    "/v1/chat/completions": (200, CHOICES),
}


def table(**changes: tuple[int, object]) -> Answer:
    pages = {**GOOD, **{"/" + name.replace("_", "/"): answer for name, answer in changes.items()}}
    return lambda path, headers: pages.get(path, (404, {}))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (table(), Readiness(True, "ready", "", "m", "/v1/completions")),
        (table(health=(503, {})), Readiness(False, "health", "/health: 503")),
        (table(v1_models=(500, {})), Readiness(False, "models", "/v1/models: 500")),
        (table(v1_models=(200, b"garbage")), Readiness(False, "models", "/v1/models: 200")),
        (
            table(v1_completions=(500, {})),
            Readiness(False, "completion", "/v1/completions: 500", "m"),
        ),
        (
            table(v1_completions=(200, {"object": "error"})),
            Readiness(False, "completion", "/v1/completions: 200", "m"),
        ),
        (table(v1_completions=(404, {})), Readiness(True, "ready", "no completions", "m")),
        (
            table(v1_completions=(400, {"message": "The model does not support Completions API"})),
            Readiness(True, "ready", "no completions", "m"),
        ),
        (
            table(
                v1_models=(404, {}),
                info=(200, {"model_id": "t"}),
                generate=(200, {"generated_text": ""}),
            ),
            Readiness(True, "ready", "", "t", "/generate"),
        ),
        (
            table(v1_models=(404, {}), info=(200, {"model_id": "t"}), generate=(200, {})),
            Readiness(False, "completion", "/generate: 200", "t"),
        ),
        (table(v1_models=(404, {})), Readiness(False, "models", "neither /v1/models nor /info")),
        (
            table(v1_models=(404, {}), info=(200, {"model_id": "t"}), generate=(424, {})),
            Readiness(False, "completion", "/generate: 424", "t"),
        ),
    ],
)
def test_how_far_it_gets(answer: Answer, expected: Readiness) -> None:
    with server(answer) as url:
        assert probe(url) == expected


@pytest.mark.parametrize(
    ("pages", "tgi", "names", "expected"),
    [
        ({}, False, ("m",), Readiness(True, "ready", "", "m", "/v1/completions")),
        ({}, False, ("x", "m"), Readiness(True, "ready", "", "m", "/v1/completions")),
        ({}, False, ("Small",), Readiness(False, "other", "/v1/models: m", "m")),
        ({}, False, ("/models/m",), Readiness(False, "other", "/v1/models: m", "m")),
        (
            {"v1_models": (200, {"data": [{"id": "m"}, {"id": "adapter"}]})},
            False,
            ("adapter",),
            Readiness(True, "ready", "", "m", "/v1/completions"),
        ),
        (
            {"info": (200, {"model_id": "me/Small"})},
            True,
            ("Other",),
            Readiness(False, "other", "/info: me/Small", "me/Small"),
        ),
        (
            {"info": (200, {"model_id": "me/Small"}), "generate": (200, {"generated_text": "x"})},
            True,
            ("/data/small",),
            Readiness(True, "ready", "", "me/Small", "/generate"),
        ),
    ],
)
def test_only_a_server_of_the_expected_name_is_ready(
    pages: dict[str, tuple[int, object]], tgi: bool, names: tuple[str, ...], expected: Readiness
) -> None:
    with server(table(**pages)) as url:
        assert probe(url, tgi=tgi, names=names) == expected


NOTHING = (404, {"detail": "Not Found"})
NOT_IT = (400, {"message": "The model does not support Completions API"})
# the forks say so with status 200
NOT_SAID = (
    200,
    {"object": "error", "message": "The model does not support Completions API", "code": 400},
)
NOT_BUILT = (501, {"error": {"message": "The model does not support Embeddings API"}})
VECTOR = (200, {"data": [{"index": 0, "embedding": [1.0]}]})
SCORES = (200, {"results": [{"index": 0, "relevance_score": 0.5}]})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            table(v1_completions=NOTHING, v1_embeddings=VECTOR),
            Readiness(True, "ready", "", "m", "/v1/embeddings"),
        ),
        (
            table(v1_completions=NOT_IT, v1_embeddings=VECTOR),
            Readiness(True, "ready", "", "m", "/v1/embeddings"),
        ),
        (
            table(v1_completions=NOT_SAID, v1_embeddings=VECTOR),
            Readiness(True, "ready", "", "m", "/v1/embeddings"),
        ),
        (
            table(v1_completions=NOT_BUILT, v1_embeddings=NOT_BUILT, rerank=SCORES),
            Readiness(True, "ready", "", "m", "/rerank"),
        ),
        (
            table(v1_completions=NOTHING, pooling=VECTOR),
            Readiness(True, "ready", "", "m", "/pooling"),
        ),
        # the first question is the one that killed an engine that said it was well
        (
            table(v1_completions=NOTHING, v1_embeddings=(500, {}), pooling=VECTOR),
            Readiness(False, "completion", "/v1/embeddings: 500", "m"),
        ),
        (
            table(v1_completions=NOTHING, rerank=(200, {"results": []})),
            Readiness(False, "completion", "/rerank: 200", "m"),
        ),
    ],
)
def test_models_that_write_nothing_are_asked_what_they_are_for(
    answer: Answer, expected: Readiness
) -> None:
    with server(answer) as url:
        assert probe(url) == expected


def test_tgi_is_asked_in_its_own_words() -> None:
    asked = []

    def answer(path: str, headers: dict[str, str]) -> tuple[int, object]:
        asked.append(path)
        pages = {"/health": {}, "/info": {"model_id": "t"}, "/generate": {"generated_text": "x"}}
        return 200, pages.get(path, {"data": [{"id": "not asked for"}]})

    with server(answer) as url:
        assert probe(url, tgi=True) == Readiness(True, "ready", "", "t", "/generate")
        assert asked == ["/health", "/info", "/generate"]
        assert probe(url, tgi=True, complete=False) == Readiness(True, "ready", "", "t")
        assert asked[3:] == ["/health", "/info"]


def test_a_key_is_sent_and_never_shown() -> None:
    def answer(path: str, headers: dict[str, str]) -> tuple[int, object]:
        return (
            GOOD.get(path, (404, {}))
            if headers.get("Authorization") == "Bearer s3cret"
            else (401, {})
        )

    with server(answer) as url:
        assert probe(url, api_key="s3cret").ready
        refused = probe(url, api_key="wrong-s3cret")
    assert not refused.ready and "s3cret" not in repr(refused)


def test_proxies_are_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with server(table()) as url:
        assert probe(url).ready


def test_a_server_that_hangs_is_given_up() -> None:
    given_up = threading.Event()

    def answer(path: str, headers: dict[str, str]) -> tuple[int, object]:
        if path == "/v1/completions":
            given_up.wait(GENEROUS)
        return GOOD[path]

    with server(answer) as url:
        found = probe(url, timeout=2.0)
        assert (found.ready, found.stage, given_up.is_set()) == (False, "completion", False)
        given_up.set()


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
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert not port_free("127.0.0.1", port)
        assert "python" in listener(port) or "pytest" in listener(port)
    assert port_free("127.0.0.1", port)
    assert listener(port) == ""


def test_a_gateway_is_ready_when_its_health_answers() -> None:
    with server(table(v1_models=(401, {}))) as url:
        assert probe_health(url) == Readiness(True, "ready", "", None, "/health")
    with server(table(health=(503, {}))) as url:
        assert probe_health(url) == Readiness(False, "health", "/health: 503")
    assert probe_health(f"http://127.0.0.1:{unused_port()}").stage == "connect"


def test_a_redirect_does_not_carry_the_key_away() -> None:
    asked: list[str] = []

    def other(path: str, headers: dict[str, str]) -> tuple[int, object]:
        asked.append(headers.get("Authorization", ""))
        return 200, MODELS

    with server(other) as there, server(lambda path, headers: (307, there + path)) as here:
        assert probe(here, api_key="sk-secret") == Readiness(False, "health", "/health: 307")
    assert asked == []


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 70000), ("127.0.0.1", -1), ("no.such.host.invalid", 80)]
)
def test_where_no_server_can_listen(host: str, port: int) -> None:
    with pytest.raises(OSError, match=r"port|not known|resolution|Name"):
        port_free(host, port)


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"],
    ids=["status", "headers", "body"],
)
def test_a_server_that_drips_holds_no_probe(beginning: bytes) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(beginning)
                with contextlib.suppress(OSError):
                    while True:
                        connection.sendall(b"x")
                        time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        # the drips go on until the one who asked is gone
        answer = ask(f"http://127.0.0.1:{listening.getsockname()[1]}/health", 0.5)
        assert answer == ProbeResult(0, b"", "timed out")


@pytest.mark.parametrize(
    ("chat", "said"),
    [
        ((400, {"message": "could not locate think tokens"}), "400 could not locate think tokens"),
        ((500, {"error": {"message": "odd\x1b[31m"}}), "500 odd [31m"),
        ((404, {"detail": "Not Found"}), "404 Not Found"),
        ((422, []), "422"),
    ],
)
def test_a_refused_chat_is_known_when_it_is_ready(chat: tuple[int, object], said: str) -> None:
    pages = {**GOOD, "/v1/chat/completions": chat}
    with server(lambda path, _headers: pages.get(path, (404, {}))) as url:
        found = probe(url)
    assert found == Readiness(
        True, "ready", "", "m", "/v1/completions", f"/v1/chat/completions: {said}"
    )
