"""The client and the forms against a real server that answers well and badly."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.extensions.bench import protocols, server
from gaudi_launch.extensions.bench.client import Client, Reply, ServerError
from gaudi_launch.extensions.bench.protocols import Events
from tests.support.stand_in_server import KEY, serving
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
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost"),
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
