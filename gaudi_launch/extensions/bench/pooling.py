"""Requests to servers without text: embeddings, rerank scores, other pooling.

Their forms: vllm-project/vllm 0.32.0:vllm/entrypoints/pooling/{embed,scoring,pooling}/protocol.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.services.server_answers import POOLED, not_served, pooled_question
from gaudi_launch.extensions.bench.client import Client, ServerError
from gaudi_launch.extensions.bench.protocols import count_of, refused, shown

# fields of an answer for its entries, and of an entry for its numbers
_LISTS = {
    "embed": ("data", "embedding"),
    "rerank": ("results", "relevance_score"),
    "pool": ("data", "data"),
}


@dataclass(frozen=True)
class Pooled:
    """The result: the numbers of each text in the order of the request.

    One number from a reranker, whose query has none; empty without an answer, nan for what is not a
    number. Also the tokens as the server counts them, and seconds.
    """

    numbers: tuple[tuple[float, ...], ...]
    input: int | None
    seconds: float

    @property
    def sound(self) -> bool:
        """Return True if every text has numbers, and all are finite."""
        return all(row and all(map(math.isfinite, row)) for row in self.numbers)


async def pick(client: Client, model: str) -> str | None:
    """Return the first task of POOLED that the server answers; None when it has none.

    Raises ServerError.
    """
    for task, path in POOLED.items():
        reply = await client.ask(path, pooled_question(task, model, ("1", "1")))
        if reply.status == 200:
            return task
        if reply.status >= 500 and not not_served(reply.status, reply.body):
            raise refused(reply)
    return None


async def pooled(client: Client, task: str, texts: Sequence[str], model: str) -> Pooled:
    """Send texts to a server; a reranker takes the first as its query.

    Raises ServerError.
    """
    reply = await client.ask(POOLED[task], pooled_question(task, model, texts))
    if reply.status != 200:
        raise refused(reply)
    found = reply.document
    entries, value = _LISTS[task]
    listed = mapping(found).get(entries)
    if not isinstance(listed, list):
        raise ServerError("protocol", shown(reply.body))
    by_place = {
        e.get("index"): e.get(value)
        for e in listed
        if isinstance(e, dict) and type(e.get("index")) is int
    }
    places = range(len(texts) - (task == "rerank"))
    usage = found.get("usage")
    counted = count_of(mapping(usage), "prompt_tokens")
    return Pooled(
        tuple(tuple(_flat(by_place.get(place))) for place in places), counted, reply.seconds
    )


def _flat(value: Any) -> list[float]:
    """Return the numbers of a value: one, a vector, or a vector per token."""
    rows = value if isinstance(value, list) else [value]
    return [_number(one) for row in rows for one in (row if isinstance(row, list) else [row])]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def nearness(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors of equal length.

    Neither is all zeros.
    """
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / (math.hypot(*one) * math.hypot(*other))
