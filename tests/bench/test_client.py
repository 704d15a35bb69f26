"""The client and the forms against a real server that answers well and badly."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.bench import protocols, server
from gaudi_launch.bench.client import Client, Reply, ServerError
from gaudi_launch.bench.server_sent_events import Events, TooLong
from tests.support.stand_in_server import FIXED, KEY, Manner, serving
from tests.support.waiting import GENEROUS


def stream(
    url: str, form: protocols.Form = "chat", tokens: int = 6, timeout: float = GENEROUS
) -> protocols.ModelAnswer:
    client = Client(url, timeout=timeout)
    return asyncio.run(
        protocols.stream(client, form, protocols.ask_one("two words", tokens), "stand-in")
    )


def whole(url: str, form: protocols.Form) -> protocols.ModelAnswer:
    return asyncio.run(
        protocols.whole(
            Client(url, timeout=GENEROUS), form, protocols.ask_one("two words", 3), "stand-in"
        )
    )


@pytest.mark.parametrize(
    ("manner", "form"), [("vllm", "chat"), ("vllm", "completions"), ("old-tgi", "generate")]
)
def test_each_form_streams_and_answers_whole(manner: str, form: protocols.Form) -> None:
    with serving(form=manner, gap=0.01) as (url, server):
        answer = stream(url, form)
        assert (answer.text, answer.tokens, answer.input) == ("Paris w1 w2 w3 w4 w5", 6, 2 + FIXED)
        assert (answer.counted, answer.ended, len(answer.pieces)) == (True, "length", 6)
        assert list(answer.pieces) == sorted(answer.pieces)
        assert answer.seconds >= answer.pieces[-1]
        sent = sent_after(server, form)
        assert sent[-1] >= 0.05 and all(a >= b for a, b in zip(answer.pieces, sent, strict=True))
        found = whole(url, form)
        assert (found.text, found.tokens, found.input, found.pieces) == (
            "Paris w1 w2",
            3,
            2 + FIXED,
            (),
        )


def sent_after(manner: Manner, form: protocols.Form) -> list[float]:
    """How long after the question each piece of a six word answer was sent: none can have come
    earlier."""
    first = 1 if form == "chat" else 0  # before it goes the role
    return [when - manner.times[-1] for when in manner.sent[first : first + 6]]


def test_without_usage_pieces_are_counted() -> None:
    with serving(usage=False) as (url, _):
        answer = stream(url)
    assert (answer.tokens, answer.counted, answer.input) == (6, False, None)


def test_pieces_have_the_times_at_which_they_came() -> None:
    """Never before they were sent; and soon after it, for which the best of some tries counts: a
    busy machine may keep the client from reading."""
    late = []
    for _ in range(8):
        with serving(first=0.1, gap=0.1) as (url, manner):
            answer = stream(url)
        sent = sent_after(manner, "chat")
        assert answer.first == answer.pieces[0] and sent[0] >= 0.1 and sent[-1] >= 0.6
        late.append([came - when for came, when in zip(answer.pieces, sent, strict=True)])
        assert min(late[-1]) >= 0
        if max(late[-1]) < 0.2:
            break
    # with the time of the whole answer the first would be half a second late
    assert min(map(max, late)) < 0.2, late


@pytest.mark.parametrize(
    ("manner", "kind", "words"),
    [
        ({"status": 503}, "status", "the engine is dead"),
        ({"key": True}, "status", "Unauthorized"),
        ({"bad": "json"}, "protocol", '{"choices"'),
        ({"bad": "error"}, "protocol", "CUDA is not what this is"),
        ({"bad": "cut"}, "cut", "peer closed"),
        ({"bad": "silent"}, "timeout", "0.5 s"),
        ({"form": "old-tgi"}, "status", "Not Found"),
    ],
)
def test_bad_answers_are_named(manner: dict[str, Any], kind: str, words: str) -> None:
    timeout = 0.5 if kind == "timeout" else GENEROUS
    with serving(**manner) as (url, _), pytest.raises(ServerError) as caught:
        stream(url, timeout=timeout)
    assert caught.value.kind == kind and words in caught.value.detail


def test_a_stream_without_its_end_is_cut() -> None:
    content = b'HTTP/1.1 200 OK\r\n\r\ndata: {"choices": [{"delta": {"content": "a"}}]}\n\n'
    with Raw(content) as url, pytest.raises(ServerError) as caught:
        stream(url)
    assert (caught.value.kind, caught.value.detail) == ("cut", "no end of the stream")


class Raw:
    """Sends these bytes to whoever connects, then closes."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __enter__(self) -> str:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        asked = b""
        # all of it: what is left unread when a connection is closed makes the kernel cut it off
        while not asked.endswith(b"}"):
            asked += connection.recv(65536)
        connection.sendall(self._content)
        connection.close()

    def __exit__(self, *_: object) -> None:
        self._thread.join(GENEROUS)
        self._socket.close()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x00\x01 no http\r\n\r\n", "protocol"),
        (b"", "cut"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "cut"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "protocol"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
            "status",
        ),
    ],
)
def test_what_is_no_http(content: bytes, kind: str) -> None:
    with Raw(content) as url, pytest.raises(ServerError) as caught:
        stream(url)
    assert caught.value.kind == kind


def test_nobody_there() -> None:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        with pytest.raises(ServerError) as caught:
            stream(f"http://127.0.0.1:{trial.getsockname()[1]}")
    assert caught.value.kind == "connect"
    with pytest.raises(ServerError) as caught:
        stream("http://nowhere.invalid:80")
    assert caught.value.kind == "connect"


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (asyncio.TimeoutError(), "no connection within 10 s"),
        (OSError(113, "No route to host"), "No route to host"),
        (OSError("odd"), "odd"),
        (UnicodeError("label empty or too long"), "label empty or too long"),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_with_the_reason(
    error: Exception, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def connect(*words: Any, **options: Any) -> None:
        asked.append((words, options))
        raise error

    monkeypatch.setattr(asyncio, "open_connection", connect)
    with pytest.raises(ServerError) as caught:
        asyncio.run(Client("http://a:81").ask("/x"))
    assert (caught.value.kind, caught.value.detail) == ("connect", detail)
    assert asked == [(("a", 81), {"ssl": None})]


@pytest.mark.parametrize(
    ("error", "detail"), [(OSError(32, "Broken pipe"), "Broken pipe"), (OSError("odd"), "odd")]
)
def test_a_connection_that_ends_while_it_is_written_to_is_cut(
    error: OSError, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []

    class Writer:
        def write(self, data: bytes) -> None:
            """Take what is sent."""

        async def drain(self) -> None:
            raise error

        def close(self) -> None:
            closed.append(True)

        async def wait_closed(self) -> None:
            raise error

    async def connect(*_: Any, **options: Any) -> tuple[None, Writer]:
        return None, Writer()

    monkeypatch.setattr(asyncio, "open_connection", connect)
    with pytest.raises(ServerError) as caught:
        asyncio.run(Client("http://a:81").ask("/x"))
    assert (caught.value.kind, caught.value.detail, closed) == ("cut", detail, [True])


def test_a_request_is_what_the_server_expects() -> None:
    """Below a prefix of its address, with a key and a body, on a connection of its own."""
    asked: list[bytes] = []

    async def talk(question: object) -> Reply:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            rest = await reader.readexactly(len(json.dumps(question)) if question else 0)
            asked.append(head + rest)
            # an answer of several pieces after one that is not final
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\n")
            writer.write(b"Content-Length: 8\r\n\r\n[1, ")
            await writer.drain()
            writer.write(b"2.5]")
            writer.close()

        listening = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with listening:
            url = f"http://127.0.0.1:{port}/proxy/"
            found = await Client(url, api_key="k").ask("/x", question)
        asked[-1] = asked[-1].replace(str(port).encode(), b"PORT")
        return found

    get, post = asyncio.run(talk(None)), asyncio.run(talk({"a": 1}))
    assert (get.status, get.document, post.status, post.document) == (201, [1, 2.5], 201, [1, 2.5])
    common = (
        b"Host: 127.0.0.1:PORT\r\nAccept: */*\r\nConnection: close\r\nAuthorization: Bearer k\r\n"
    )
    length = b"Content-Type: application/json\r\nContent-Length: 8\r\n"
    assert asked == [
        b"GET /proxy/x HTTP/1.1\r\n" + common + b"\r\n",
        b"POST /proxy/x HTTP/1.1\r\n" + common + length + b"\r\n" + b'{"a": 1}',
    ]


@pytest.mark.parametrize(
    ("error", "short", "sentence"),
    [
        (ServerError("status", "x", 500), "status 500", "measure.fail_status"),
        (ServerError("status", "x", 401), "status 401", "measure.fail_key"),
        (ServerError("status", "x", 403), "status 403", "measure.fail_key"),
        (ServerError("cut", "x"), "cut", "measure.fail_cut"),
    ],
)
def test_failures_are_counted_by_kind_and_told_by_their_sentence(
    error: ServerError, short: str, sentence: str
) -> None:
    assert (error.short, error.sentence, str(error)) == (short, sentence, "x")


def test_the_port_of_an_address_is_the_schemes_unless_it_is_given() -> None:
    addresses = ("http://a", "https://a", "http://a:81", "https://[::1]:82")
    found = [(client._host, client._port, client._secure) for client in map(Client, addresses)]
    assert found == [("a", 80, False), ("a", 443, True), ("a", 81, False), ("::1", 82, True)]


def test_content_that_is_not_json_is_no_document() -> None:
    assert [Reply(200, body, 0.1).document for body in (b"{", b"", b"[1]", b"[" * 100_000)] == [
        None,
        None,
        [1],
        None,
    ]


def test_the_key_is_sent_and_never_shown() -> None:
    with serving(key=True) as (url, manner):
        good = Client(url, api_key=KEY)
        assert asyncio.run(server.look(good)).model == "stand-in"
        assert (
            asyncio.run(
                protocols.stream(good, "chat", protocols.ask_one("a", 2), "stand-in")
            ).tokens
            == 2
        )
        bad = Client(url, api_key="wrong\nline")
        with pytest.raises(ServerError) as caught:
            asyncio.run(server.look(bad))
        assert "wrong" not in str(caught.value) and "wrong" not in repr(bad)
    assert manner.heads[0]["Authorization"] == f"Bearer {KEY}"


def test_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no openssl program here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    async def run() -> int:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()
            writer.close()

        listening = await asyncio.start_server(answer, "localhost", 0, ssl=context)
        port = listening.sockets[0].getsockname()[1]
        async with listening:
            with pytest.raises(ServerError) as caught:
                await Client(f"https://localhost:{port}").ask("/health")
            assert caught.value.kind == "connect"
            monkeypatch.setenv("SSL_CERT_FILE", str(cert))
            return (await Client(f"https://localhost:{port}").ask("/health")).status

    assert asyncio.run(run()) == 200


@settings(deadline=None)
@given(
    st.lists(st.text(st.characters(blacklist_characters="\r\n", codec="utf-8"), min_size=1)),
    st.data(),
)
def test_events_survive_any_cut(texts: list[str], data: st.DataObject) -> None:
    ends = [data.draw(st.sampled_from(["\n", "\r\n", "\r"])) for _ in texts]
    whole = (
        "".join(f"data: {text}{end}{end}" for text, end in zip(texts, ends, strict=True)).encode()
        + b"\n"
    )
    at = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]
    events = Events()
    assert [found for piece in pieces for found in events.feed(piece)] == texts


def test_events_join_lines_and_pass_over_comments() -> None:
    events = Events()
    assert events.feed(b": ping\nevent: x\ndata: a\ndata:b\n\ndata: {}\n\n") == ["a\nb", "{}"]
    with pytest.raises(TooLong):
        events.feed(b"data: " + b"x" * (5 << 20))


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "delta",
                        "message",
                        "content",
                        "text",
                        "usage",
                        "token",
                        "details",
                        "generated_text",
                        "error",
                        "prompt_tokens",
                    ]
                ),
                inner,
            )
        ),
    )
)
def test_no_json_ends_in_a_traceback(document: Any) -> None:
    content = f"data: {json.dumps(document)}\n\ndata: [DONE]\n\n".encode()
    for form in protocols.FORMS:
        taken = protocols._Taken(form, 0.0, None)
        try:
            taken.feed(0.0, content)
            taken.answer()
        except ServerError as error:
            assert error.kind in ("protocol", "cut")


def test_what_a_server_says_of_itself() -> None:
    with serving() as (url, _):
        found = asyncio.run(server.look(Client(url)))
    assert found == server.ServerFacts("stand-in", ("stand-in",), 4096, None, False, True)
    with serving(form="old-tgi") as (url, _):
        found = asyncio.run(server.look(Client(url)))
    assert found == server.ServerFacts("some/model", ("some/model",), 2048, 1024, True, False)


@pytest.mark.parametrize(
    ("manner", "form"), [("vllm", "chat"), ("base", "completions"), ("old-tgi", "generate")]
)
def test_the_form_that_answers_is_found(manner: str, form: str) -> None:
    with serving(form=manner) as (url, _):
        client = Client(url)
        served = asyncio.run(server.look(client))
        assert asyncio.run(server.pick_form(client, served)) == form


def test_texts_have_the_wished_length() -> None:
    async def lengths(url: str) -> tuple[server.Ruler, int, int]:
        client = Client(url)
        served = await server.look(client)
        ruler = await server.measure_ruler(client, served, "chat")
        prompt, counted = await server.exactly(client, served, "chat", ruler, 777, seed=1)
        return ruler, counted, len(prompt.split())

    with serving() as (url, _):
        assert asyncio.run(lengths(url)) == (
            server.Ruler(1.0, float(FIXED), True),
            777,
            777 - FIXED,
        )
    with serving(usage=False) as (url, _):
        ruler, counted, words = asyncio.run(lengths(url))
    # no count of the server's, but its /tokenize has one
    assert (ruler, counted, words) == (server.Ruler(), 777, 777 - FIXED)


def test_texts_differ_from_their_first_words_on() -> None:
    texts = [server.text(50, seed) for seed in range(200)]
    assert len({tuple(text.split()[:6]) for text in texts}) > 190
    assert (
        server.text(60, 3).startswith(server.text(50, 3))
        and server.text(5, 3) == server.text(50, 3)[: len(server.text(5, 3))]
    )
    for words in (1, 12, 13, 70_000, 200_000):
        assert len(server.text(words, 9).split()) == words
    assert server.text(140_000, 9).startswith(server.text(70_000, 9))
