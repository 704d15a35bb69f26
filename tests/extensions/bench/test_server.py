"""A server's facts, the form that it answers, and texts of a requested length."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gaudi_launch.extensions.bench.client import ServerError
from gaudi_launch.extensions.bench.server import (
    Ruler,
    ServerFacts,
    find_form,
    fitted,
    look,
    ruler_of,
    text,
)
from tests.support.scripted_client import ScriptedClient

SERVED = ServerFacts("m", ("m",))
Counting = Callable[[str], Coroutine[Any, Any, int | None]]
NOT_FOUND = (404, {"detail": "Not Found"})


def always(status: int, document: Any) -> ScriptedClient:
    """Return the client of a server that has one answer to everything."""
    return ScriptedClient(lambda *_: (status, document))


def served_by(info: Any, models: Any, model: str | None = None) -> ServerFacts:
    answers = {"/info": info, "/v1/models": models}
    client = ScriptedClient(lambda path, _: answers[path])
    found = asyncio.run(look(client, model))
    assert client.asked == [("/info", None), ("/v1/models", None)]
    return found


INFO = {"model_id": "org/m", "max_total_tokens": 2048, "max_input_tokens": 1024}


@pytest.mark.parametrize(
    ("info", "models", "error"),
    [
        (NOT_FOUND, NOT_FOUND, ("status", "Not Found", 404)),
        (NOT_FOUND, (200, {"data": []}), ("protocol", "/v1/models names no model", 0)),
        ((200, INFO), (500, {"error": "dead"}), ("status", "dead", 500)),
    ],
)
def test_a_server_without_a_model_is_an_error(info: Any, models: Any, error: Any) -> None:
    with pytest.raises(ServerError) as caught:
        served_by(info, models)
    assert (caught.value.kind, caught.value.detail, caught.value.status) == error


@pytest.mark.parametrize(
    ("status", "kind", "asked"),
    [(401, "status", 1), (403, "status", 1), (500, "status", 1), (501, "status", 5)],
)
def test_a_server_that_fails_is_asked_no_more(status: int, kind: str, asked: int) -> None:
    client = always(status, {"message": "no"})
    with pytest.raises(ServerError) as caught:
        asyncio.run(find_form(client, SERVED))
    assert (caught.value.kind, caught.value.status, len(client.asked)) == (kind, status, asked)


def counting(each: int, fixed: int, asked: list[int]) -> Counting:
    """Return a server's count: ``each`` tokens for a noun, and ``fixed`` more."""

    async def count(prompt: str) -> int | None:
        asked.append(len(prompt.split()))
        return each * asked[-1] + fixed

    return count


@pytest.mark.parametrize("counts", [[None, 9], [9, None], [9, 9], [9, 5]])
def test_without_a_line_a_noun_is_a_token(counts: list[int | None]) -> None:
    left = iter(counts)

    async def count(prompt: str) -> int | None:
        return next(left)

    assert asyncio.run(ruler_of(count, None)) == Ruler(1.0, 0.0, False)


def fit(count: Counting, ruler: Ruler, tokens: int) -> tuple[int, int]:
    found, counted = asyncio.run(fitted(count, ruler, tokens, 5))
    assert found == text(len(found.split()), 5)
    return len(found.split()), counted


def test_a_text_is_as_long_as_its_server_counts() -> None:
    asked: list[int] = []
    assert fit(counting(2, 7, asked), Ruler(2.0, 7.0, True), 207) == (100, 207)
    assert asked == [100]
    # a ruler that is wrong is corrected by what was counted
    asked.clear()
    assert fit(counting(2, 7, asked), Ruler(1.0, 0.0, False), 207) == (100, 207)
    assert asked[0] == 207
    # one noun too many is one noun less
    asked.clear()
    assert fit(counting(2, 7, asked), Ruler(2.0, 5.0, True), 208) == (100, 207)
    assert asked == [101, 100]
    # an odd length is not reached: the longest below it, and no request more than this takes
    asked.clear()
    assert fit(counting(2, 7, asked), Ruler(2.0, 7.0, True), 208) == (100, 207)
    assert asked == [100, 101]
    # nothing is this short: one request shows it
    asked.clear()
    assert fit(counting(2, 7, asked), Ruler(2.0, 7.0, True), 5) == (1, 0)
    assert asked == [1]


@pytest.mark.parametrize("each", [2, 3, 5])
def test_a_ruler_that_is_far_off_is_corrected(each: int) -> None:
    """A server without counts in its answers may still have /tokenize."""
    assert fit(counting(each, 0, []), Ruler(), 300) == (300 // each, 300)
