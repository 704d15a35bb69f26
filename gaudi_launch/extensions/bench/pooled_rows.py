"""The rows of a check for servers without text: task, longest text, speed."""

from __future__ import annotations

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped, value_or
from gaudi_launch.extensions.bench import pooling, server
from gaudi_launch.extensions.bench.check.rows import CheckRow
from gaudi_launch.extensions.bench.client import Client

# any embedding model or reranker ranks the second text nearer to the first than the third
_QUESTION = "What is the capital of France?"
_TEXTS = (
    _QUESTION,
    "Paris is the capital of France.",
    "Knead the dough and let it rise for an hour.",
)
_MANY, _WORDS = 32, 64


async def first(client: Client, served: server.ServerFacts, task: str) -> CheckRow:
    """Send three texts; check that each has numbers, which differ between the texts.

    ``task`` is one of POOLED.
    """
    answer = await pooling.pooled(client, task, _TEXTS, served.model)
    rows = answer.numbers
    values: dict[str, object] = {"input": answer.input, "numbers": [len(row) for row in rows]}
    if not answer.sound:
        return CheckRow(
            task, "fail", message("measure.check_no_numbers"), answer.seconds, values, "engine"
        )
    if task == "rerank":
        near, far = rows[0][0], rows[1][0]
        values |= {"fitting": near, "other": far}
        id = "measure.check_rerank_order"
        if near > far:
            id = "measure.check_rerank"
        return CheckRow(
            task, "ok", message(id, near=f"{near:.3g}", far=f"{far:.3g}"), answer.seconds, values
        )
    if task == "pool":
        sentence = message("measure.check_pool", sizes=", ".join(str(len(row)) for row in rows))
        return CheckRow(task, "ok", sentence, answer.seconds, values)
    sizes = sorted({len(row) for row in rows})
    if len(sizes) > 1:
        sentence = message("measure.check_sizes", sizes=", ".join(map(str, sizes)))
        return CheckRow(task, "fail", sentence, answer.seconds, values, "engine")
    if len(set(rows)) == 1 or not all(any(row) for row in rows):
        return CheckRow(
            task, "fail", message("measure.check_same_vectors"), answer.seconds, values, "engine"
        )
    near, far = pooling.nearness(rows[0], rows[1]), pooling.nearness(rows[0], rows[2])
    values |= {"fitting": near, "other": far}
    sentence = message("measure.check_embed", size=sizes[0], near=f"{near:.2f}", far=f"{far:.2f}")
    return CheckRow(task, "ok", sentence, answer.seconds, values)


async def _put(
    client: Client, served: server.ServerFacts, task: str, texts: tuple[str, ...]
) -> pooling.Pooled:
    """Send texts; a reranker gets a query before them. Raises ServerError."""
    if task == "rerank":
        texts = (_QUESTION, *texts)
    return await pooling.pooled(client, task, texts, served.model)


async def long(
    client: Client, served: server.ServerFacts, task: str, tokens: int, why: Message
) -> CheckRow:
    """Send one text of this number of input tokens, or as close as possible."""

    async def count(words: str) -> int | None:
        return (await _put(client, served, task, (words,))).input

    ruler = await server.ruler_of(count, served.longest)
    # what the server adds to a text (a reranker's query, a template) is the same for a short one
    plain = server.counter(client, served, "completions")
    short = server.text(16, 16)
    alone, counted_tokens = await plain(short), await count(short)

    async def fitting(words: str) -> int | None:
        if counted_tokens is None or alone is None:
            return None
        counted = await plain(words)
        return mapped(lambda tokens: tokens + counted_tokens - alone, counted)

    prompt, counted = await server.fitted(fitting, ruler, tokens, server.new_seed())
    answer = await _put(client, served, task, (prompt,))
    input_tokens = value_or(answer.input, counted)
    values = {"wanted": tokens, "input": input_tokens}
    if not answer.sound:
        return CheckRow(
            "long", "fail", message("measure.check_no_numbers"), answer.seconds, values, "engine"
        )
    rate = round(input_tokens / answer.seconds)
    sentence = message(
        "measure.check_long_pooled",
        tokens=input_tokens,
        why=why.render(),
        seconds=f"{answer.seconds:.2f}",
        rate=rate,
    )
    return CheckRow("long", "ok", sentence, answer.seconds, values)


async def speed(client: Client, served: server.ServerFacts, task: str) -> CheckRow:
    """Send many texts in one request."""
    words = max(1, min(_WORDS, (served.longest or 4 * _WORDS) // 8))
    seed = server.new_seed()
    texts = tuple(server.text(words, seed + number) for number in range(_MANY))
    answer = await _put(client, served, task, texts)
    if not answer.sound:
        return CheckRow(
            "speed", "fail", message("measure.check_no_numbers"), answer.seconds, {}, "engine"
        )
    each_second = _MANY / answer.seconds
    values = {"texts_per_second": round(each_second, 3), "input": answer.input}
    if answer.input is None:
        sentence = message("measure.check_speed_texts", count=_MANY, texts=f"{each_second:.1f}")
        return CheckRow("speed", "ok", sentence, answer.seconds, values)
    rate = answer.input / answer.seconds
    values["tokens_per_second"] = round(rate, 3)
    sentence = message(
        "measure.check_speed_pooled",
        count=_MANY,
        tokens=answer.input,
        rate=f"{rate:.1f}",
        texts=f"{each_second:.1f}",
    )
    return CheckRow("speed", "ok", sentence, answer.seconds, values)
