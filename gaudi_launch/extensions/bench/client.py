"""A small HTTP client for measuring: asyncio's streams with h11's protocol.

Each piece of an answer has the time of its arrival. One connection per request: no request waits
for another's connection, and a dead one is never used again. Proxies are bypassed (they would
intercept 127.0.0.1); redirects are answers, never followed (they would leak the key).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11

from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.services.server_answers import true_status

_MOST_BYTES = 16 << 20
_READ = 1 << 16


class ServerError(Exception):
    """A failed request.

    ``kind``: connect, timeout, status, protocol (not HTTP, not a stream), cut (the connection ended
    during the answer). ``detail`` is the server's or the system's message.
    """

    def __init__(self, kind: str, detail: str, status: int = 0) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.status = status

    @property
    def short(self) -> str:
        """Return the kind, with the status, for counting."""
        if self.kind == "status":
            return f"status {self.status}"
        return self.kind

    @property
    def sentence(self) -> str:
        """Return the id of the sentence about it; it has the values why and status."""
        if self.status in (401, 403):
            return "measure.fail_key"
        return f"measure.fail_{self.kind}"


@dataclass(frozen=True)
class Reply:
    """A complete answer. ``seconds`` from the sending to its last byte."""

    status: int
    body: bytes
    seconds: float

    @property
    def document(self) -> Any:
        """Return the JSON of the body; None for other content."""
        try:
            # an engine's NaN is what a check must see
            return parse_json(self.body, as_engine=True)
        except ValueError:
            return None


class Response:
    """An answer as it arrives: its status, then its bytes with their times."""

    def __init__(self, status: int, connection: _Connection) -> None:
        self.status = status
        self._connection = connection

    async def pieces(self) -> AsyncIterator[tuple[float, bytes]]:
        """Yield (time.perf_counter() at arrival, bytes). Raises ServerError."""
        while True:
            event = await self._connection.event()
            if isinstance(event, h11.Data):
                yield self._connection.arrived, bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    async def body(self) -> bytes:
        """Return the complete body, 16 MiB at most."""
        parts, size = [], 0
        async for _, part in self.pieces():
            parts.append(part)
            size += len(part)
            if size > _MOST_BYTES:
                break
        return b"".join(parts)


_PORTS = {"https": 443}
# the kind of a broken answer, by the end of its connection
_ENDED = {True: "cut", False: "protocol"}


class _Connection:
    """The protocol's state over one socket."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float
    ) -> None:
        self._reader = reader
        self.writer = writer
        self._timeout = timeout
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self._ended = False
        self.arrived = 0.0

    async def send(self, request: h11.Request, body: bytes) -> None:
        events: list[Any] = [request, h11.Data(data=body), h11.EndOfMessage()]
        if not body:
            events = [request, h11.EndOfMessage()]
        for event in events:
            self.writer.write(self._protocol.send(event) or b"")
        await self.writer.drain()

    async def event(self) -> h11.Event:
        while True:
            try:
                event = self._protocol.next_event()
                if event is h11.NEED_DATA:
                    data = await asyncio.wait_for(self._reader.read(_READ), self._timeout)
                    self.arrived = time.perf_counter()
                    self._ended = not data
                    self._protocol.receive_data(data)
                    continue
            except h11.RemoteProtocolError as error:
                raise ServerError(_ENDED[self._ended], str(error)) from None
            except (asyncio.TimeoutError, TimeoutError):
                raise ServerError("timeout", f"{self._timeout:g} s") from None
            except OSError as error:
                raise ServerError("cut", error.strerror or str(error)) from None
            if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise ServerError("cut", "closed")
            assert isinstance(event, h11.Event)
            return event


class Client:
    """Sends requests to one server.

    ``timeout`` is in seconds without data; the key is sent, never shown.
    """

    def __init__(self, url: str, *, api_key: str | None = None, timeout: float = 120.0) -> None:
        parts = urlsplit(url)
        self.url = url
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or _PORTS.get(parts.scheme, 80)
        self._path = parts.path.rstrip("/")
        self._timeout = timeout
        self._headers = [("Host", parts.netloc), ("Accept", "*/*"), ("Connection", "close")]
        if api_key:
            self._headers.append(("Authorization", f"Bearer {api_key}"))

    @contextlib.asynccontextmanager
    async def open(self, path: str, question: object = None) -> AsyncIterator[Response]:
        """Send a request (POST with a question, else GET) and read the answer's header.

        Raises ServerError.
        """
        method, body = "GET", b""
        headers = list(self._headers)
        if question is not None:
            method, body = "POST", json.dumps(question).encode()
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        try:
            request = h11.Request(
                method=method,
                target=self._path + path,
                headers=headers,
            )
        except h11.LocalProtocolError:
            # a key with a line break; h11's sentence would repeat it
            raise ServerError(
                "connect", "VLLM_API_KEY has characters that a header cannot contain"
            ) from None
        connection = await self._connect()
        try:
            try:
                await connection.send(request, body)
            except OSError as error:
                raise ServerError("cut", error.strerror or str(error)) from None
            while True:
                event = await connection.event()
                # 1xx answers come before the real one
                if isinstance(event, h11.Response):
                    break
            yield Response(event.status_code, connection)
        finally:
            connection.writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError, ssl.SSLError):
                await asyncio.wait_for(connection.writer.wait_closed(), 1.0)

    async def _connect(self) -> _Connection:
        context = ssl.create_default_context() if self._secure else None
        try:
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(self._host, self._port, ssl=context),
                min(10.0, self._timeout),
            )
        except (asyncio.TimeoutError, TimeoutError):
            raise ServerError("connect", "no connection within 10 s") from None
        except (OSError, UnicodeError) as error:
            raise ServerError("connect", getattr(error, "strerror", None) or str(error)) from None
        return _Connection(reader, writer, self._timeout)

    async def ask(self, path: str, question: object = None) -> Reply:
        """Return one complete answer, whatever its status.

        Raises ServerError without one.
        """
        began = time.perf_counter()
        async with self.open(path, question) as response:
            body = await response.body()
        return Reply(true_status(response.status, body), body, time.perf_counter() - began)
