"""Fake OpenAI engine for tests of a gateway: real process, port and streams.

Run as ``python fake_engine.py --port N --model NAME [--first S] [--gap S]``. It answers requests
for its models only (404 for another one, so wrong routing shows), one token per ``--gap`` seconds.
The field ``user`` of a request can make it fail: ``drop`` closes the connection before the first
byte, ``die:N`` after N tokens, ``hang`` never answers, ``busy`` answers 503, ``fail`` 500. GET
/fake returns the requests that it has received.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

GENERATING = ("/v1/chat/completions", "/v1/completions")
POOLING = ("/v1/embeddings", "/rerank", "/v1/rerank", "/pooling", "/score")
_REASONS = {
    200: "OK",
    401: "Unauthorized",
    404: "Not Found",
    500: "Internal Error",
    503: "Unavailable",
}


@dataclass
class Seen:
    """Requests that the engine has received, for GET /fake."""

    requests: int = 0
    running: int = 0
    most_running: int = 0
    left: int = 0
    largest: int = 0
    received: int = 0
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Manner:
    """Manner of the engine's answers; times in seconds."""

    models: tuple[str, ...]
    first: float
    gap: float


class Engine:
    """One engine; `serve` is called for each connection."""

    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        self.seen = Seen()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests of one connection until either side closes it."""
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line = (await reader.readuntil(b"\r\n")).decode("latin-1").split()
        headers = await _headers(reader)
        body = await self._body(reader, headers)
        method, path = line[0], line[1].split("?")[0]
        stays = headers.get("connection", "").lower() != "close"
        if method == "GET":
            await self._get(path, writer)
            return stays
        self.seen.requests += 1
        self.seen.paths.append(path)
        self.seen.headers.append(headers)
        self.seen.largest = max(self.seen.largest, len(body))
        document = json.loads(body)
        self.seen.prompts.append(_prompt(document)[:2000])
        self.seen.running += 1
        self.seen.most_running = max(self.seen.most_running, self.seen.running)
        try:
            return await self._post(path, document, writer) and stays
        finally:
            self.seen.running -= 1

    async def _body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        """Return a body; each byte is counted when it comes."""
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return await self._exactly(reader, int(headers.get("content-length", "0")))
        pieces = []
        while (size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)) > 0:
            pieces.append(await self._exactly(reader, size))
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")
        return b"".join(pieces)

    async def _exactly(self, reader: asyncio.StreamReader, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = await reader.read(size - len(found))
            if not piece:
                raise asyncio.IncompleteReadError(found, size)
            self.seen.received += len(piece)
            found += piece
        return found

    async def _get(self, path: str, writer: asyncio.StreamWriter) -> None:
        manner, seen = self._manner, self.seen
        if path == "/health":
            await _send(writer, b"", 200)
        elif path == "/v1/models":
            data = [{"id": name, "object": "model", "owned_by": "fake"} for name in manner.models]
            await _send_json(writer, {"object": "list", "data": data})
        elif path == "/metrics":
            page = f"vllm:num_requests_running {seen.running}.0\nvllm:num_requests_waiting 0.0\n"
            await _send(writer, page.encode(), 200, "text/plain")
        elif path == "/fake":
            await _send_json(writer, asdict(seen))
        else:
            await _send_json(writer, {"detail": "Not Found"}, 404)

    async def _post(
        self, path: str, document: dict[str, Any], writer: asyncio.StreamWriter
    ) -> bool:
        manner = self._manner
        name = document.get("model")
        if path not in (*GENERATING, *POOLING):
            await _send_json(writer, {"detail": "Not Found"}, 404)
            return True
        if name not in manner.models:
            error = {
                "message": f"The model `{name}` does not exist.",
                "type": "NotFoundError",
                "code": 404,
            }
            await _send_json(writer, {"error": error}, 404)
            return True
        order = str(document.get("user") or "")
        if order == "drop":
            return False
        if order == "hang":
            await asyncio.sleep(3600)
        if order in ("busy", "fail"):
            await _send_json(writer, {"error": {"message": order}}, 503 if order == "busy" else 500)
            return True
        if path in POOLING:
            await asyncio.sleep(manner.first)
            await _send_json(writer, _pooled(path, document))
            return True
        count = int(document.get("max_tokens") or 16)
        if document.get("stream"):
            return await self._stream(path, document, count, order, writer)
        await asyncio.sleep(manner.first + manner.gap * count)
        await _send_json(writer, _complete(path, str(name), count))
        return True

    async def _stream(
        self,
        path: str,
        document: dict[str, Any],
        count: int,
        order: str,
        writer: asyncio.StreamWriter,
    ) -> bool:
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
            "\r\n"
        )
        # as vLLM does: the head is sent before the prompt is read
        writer.write(head.encode())
        await writer.drain()
        await asyncio.sleep(self._manner.first)
        last = int(order.removeprefix("die:")) if order.startswith("die:") else count + 1
        try:
            for number in range(count):
                if number == last:
                    return False
                if number:
                    await asyncio.sleep(self._manner.gap)
                _chunk(
                    writer, f"data: {json.dumps(_piece(path, str(document['model']), number))}\n\n"
                )
                await writer.drain()
        except ConnectionError:
            self.seen.left += 1
            raise
        _chunk(writer, "data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    found = {}
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        name, _, value = line.decode("latin-1").partition(":")
        found[name.strip().lower()] = value.strip()
    return found


async def _send(
    writer: asyncio.StreamWriter, body: bytes, status: int, kind: str = "application/json"
) -> None:
    reason = _REASONS.get(status, "Status")
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()


async def _send_json(
    writer: asyncio.StreamWriter, document: dict[str, Any], status: int = 200
) -> None:
    await _send(writer, json.dumps(document).encode(), status)


def _chunk(writer: asyncio.StreamWriter, text: str) -> None:
    content = text.encode()
    writer.write(b"%x\r\n%s\r\n" % (len(content), content))


def _prompt(document: dict[str, Any]) -> str:
    messages = document.get("messages")
    if isinstance(messages, list):
        return " ".join(str(each.get("content")) for each in messages)
    return str(document.get("prompt") or document.get("input") or document.get("query") or "")


def _piece(path: str, model: str, number: int) -> dict[str, Any]:
    word = f"w{number} "
    choice = {"delta": {"content": word}} if path == GENERATING[0] else {"text": word}
    return {
        "object": "chunk",
        "model": model,
        "choices": [{"index": 0, **choice, "finish_reason": None}],
    }


def _complete(path: str, model: str, count: int) -> dict[str, Any]:
    text = "".join(f"w{number} " for number in range(count))
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    choice |= (
        {"message": {"role": "assistant", "content": text}}
        if path == GENERATING[0]
        else {"text": text}
    )
    return {"model": model, "choices": [choice], "usage": {"completion_tokens": count}}


def _pooled(path: str, document: dict[str, Any]) -> dict[str, Any]:
    if path == "/v1/embeddings":
        return {"model": document["model"], "data": [{"index": 0, "embedding": [0.5, 0.25]}]}
    result = {"index": 0, "document": {"text": "d"}, "relevance_score": 0.5}
    return {
        "id": "rerank-1",
        "model": document["model"],
        "usage": {"total_tokens": 2},
        "results": [result],
    }


async def main() -> None:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", nargs="+", required=True)
    parser.add_argument("--first", type=float, default=0.0)
    parser.add_argument("--gap", type=float, default=0.02)
    options = parser.parse_args()
    engine = Engine(Manner(tuple(options.model), options.first, options.gap))
    server = await asyncio.start_server(engine.serve, options.host, options.port, limit=1 << 16)
    print(f"listening on {options.port}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
