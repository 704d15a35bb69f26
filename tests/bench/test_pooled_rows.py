"""The rows of a check for servers without text, from answers that are known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from gaudi_launch.bench import pooled_rows, pooling, server
from gaudi_launch.bench.check_rows import CheckRow
from gaudi_launch.bench.pooled_rows import Asking
from gaudi_launch.bench.pooling import Pooled
from gaudi_launch.messages import message

SERVED = server.ServerFacts("m", ("m",), 512)
VECTORS = ((3.0, 4.0), (3.0, 4.0), (4.0, -3.0))


def put(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[Sequence[str]], Pooled]
) -> list[tuple[str, tuple[str, ...], str]]:
    """Answer every request with ``answer``; return what is sent."""
    sent: list[tuple[str, tuple[str, ...], str]] = []

    async def pooled(client: Any, task: str, texts: Sequence[str], model: str) -> Pooled:
        sent.append((task, tuple(texts), model))
        return answer(texts)

    monkeypatch.setattr(pooling, "pooled", pooled)
    return sent


def asking(task: str) -> Asking:
    return Asking(None, SERVED, task)  # type: ignore[arg-type]


def row(task: str, numbers: tuple[tuple[float, ...], ...], mp: pytest.MonkeyPatch) -> CheckRow:
    sent = put(mp, lambda _: Pooled(numbers, 21, 0.5))
    found = asyncio.run(pooled_rows.first(asking(task)))
    assert [(each[0], len(each[1]), each[2]) for each in sent] == [(task, 3, "m")]
    return found


def test_vectors_that_are_near_where_the_texts_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert row("embed", VECTORS, monkeypatch) == CheckRow(
        "embed",
        "ok",
        message("measure.check_embed", size=2, near="1.00", far="0.00"),
        0.5,
        {"input": 21, "numbers": [2, 2, 2], "fitting": 1.0, "other": 0.0},
    )


def test_other_poolings_show_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert row("pool", ((1.0,), (1.0, 2.0)), monkeypatch) == CheckRow(
        "pool",
        "ok",
        message("measure.check_pool", sizes="1, 2"),
        0.5,
        {"input": 21, "numbers": [1, 2]},
    )


@pytest.fixture
def exact_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a text of as many words as are wanted; each word is a token, and 5 are added."""

    async def ruler_of(count: Callable[[str], Awaitable[int | None]], longest: int | None) -> int:
        assert (await count("a b"), longest) == (7, 512)
        return 1

    async def fitted(
        count: Callable[[str], Awaitable[int | None]], ruler: int, tokens: int, seed: int
    ) -> tuple[str, int]:
        prompt = " ".join(["w"] * (tokens - 5))
        counted = await count(prompt)
        assert counted == tokens
        return prompt, tokens - 1

    def counter(client: Any, served: Any, form: str) -> Callable[[str], Awaitable[int | None]]:
        async def count(words: str) -> int | None:
            return len(words.split())

        return count

    monkeypatch.setattr(server, "ruler_of", ruler_of)
    monkeypatch.setattr(server, "fitted", fitted)
    monkeypatch.setattr(server, "counter", counter)


@pytest.mark.usefixtures("exact_texts")
def test_one_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, lambda texts: Pooled(((1.0,),), len(texts[-1].split()) + 5, 0.5))
    why = message("measure.edge_wish")
    assert asyncio.run(pooled_rows.long(asking("embed"), 200, why)) == CheckRow(
        "long",
        "ok",
        message(
            "measure.check_long_pooled", tokens=200, why=why.render(), seconds="0.50", rate=400
        ),
        0.5,
        {"wanted": 200, "input": 200},
    )
    put(monkeypatch, lambda texts: Pooled(((),), len(texts[-1].split()) + 5, 0.5))
    assert asyncio.run(pooled_rows.long(asking("embed"), 200, why)) == CheckRow(
        "long",
        "fail",
        message("measure.check_no_numbers"),
        0.5,
        {"wanted": 200, "input": 200},
        "engine",
    )


def speed(task: str, answer: Pooled, monkeypatch: pytest.MonkeyPatch) -> CheckRow:
    sent = put(monkeypatch, lambda _: answer)
    found = asyncio.run(pooled_rows.speed(asking(task)))
    ((_, texts, _),) = sent
    assert len(texts) == 32 + (task == "rerank")
    # an eighth of the longest input, at most 64 words
    assert {len(text.split()) for text in texts[-32:]} == {64}
    assert len({*texts}) == len(texts)
    return found


def test_many_texts_in_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Pooled(((1.0,),), 2048, 0.5)
    assert speed("embed", counted, monkeypatch) == CheckRow(
        "speed",
        "ok",
        message("measure.check_speed_pooled", count=32, tokens=2048, rate="4096.0", texts="64.0"),
        0.5,
        {"texts_per_second": 64.0, "input": 2048, "tokens_per_second": 4096.0},
    )
    uncounted = Pooled(((1.0,),), None, 0.5)
    assert speed("rerank", uncounted, monkeypatch) == CheckRow(
        "speed",
        "ok",
        message("measure.check_speed_texts", count=32, texts="64.0"),
        0.5,
        {"texts_per_second": 64.0, "input": None},
    )
    assert speed("pool", Pooled(((),), 1, 0.5), monkeypatch) == CheckRow(
        "speed", "fail", message("measure.check_no_numbers"), 0.5, {}, "engine"
    )


@pytest.mark.parametrize(("longest", "words"), [(None, 32), (4096, 64), (80, 10), (7, 1)])
def test_texts_of_the_speed_are_an_eighth_of_the_longest(
    longest: int | None, words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = put(monkeypatch, lambda _: Pooled(((1.0,),), 2048, 0.5))
    served = server.ServerFacts("m", ("m",), longest)
    asyncio.run(pooled_rows.speed(Asking(None, served, "embed")))  # type: ignore[arg-type]
    assert [len(text.split()) for text in sent[0][1]] == [words] * 32
