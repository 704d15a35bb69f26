"""A client of a server whose answers are given by a function, without a network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from gaudi_launch.extensions.bench.client import Client, Reply, Response, ServerError

Answer = Callable[[str, Any], tuple[int, Any]]
Piece = tuple[float, bytes]


class ScriptedClient(Client):
    """``answer`` gives (status, document) for a path and a question.

    ``asked`` lists both for each request. ``streamed`` are the pieces of a streamed answer, with
    the times of their arrival; an error among them is raised.
    """

    def __init__(
        self,
        answer: Answer | None = None,
        streamed: Sequence[Piece | ServerError] = (),
        status: int = 200,
    ) -> None:
        super().__init__("http://scripted:1")
        self._answer = answer
        self._streamed = streamed
        self._status = status
        self.asked: list[tuple[str, Any]] = []

    async def ask(self, path: str, question: object = None) -> Reply:
        self.asked.append((path, question))
        assert self._answer is not None
        status, document = self._answer(path, question)
        if isinstance(document, ServerError):
            raise document
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return Reply(status, body, 0.5)

    @asynccontextmanager
    async def open(self, path: str, question: object = None) -> AsyncIterator[Response]:
        self.asked.append((path, question))
        yield ScriptedResponse(self._status, self._streamed)


class ScriptedResponse(Response):
    """An answer of known pieces."""

    def __init__(self, status: int, streamed: Sequence[Piece | ServerError]) -> None:
        self.status = status
        self._streamed = streamed

    async def pieces(self) -> AsyncIterator[Piece]:
        for piece in self._streamed:
            if isinstance(piece, ServerError):
                raise piece
            yield piece


def sent_event(document: Any) -> bytes:
    """Return a server-sent event with this JSON."""
    return f"data: {json.dumps(document)}\n\n".encode()
