"""Check a running server, with a row for each request."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import value_or
from gaudi_launch.core.services.endpoint import Target, option
from gaudi_launch.core.services.server_answers import POOLED
from gaudi_launch.extensions.bench import pooled_rows, protocols, server
from gaudi_launch.extensions.bench.check.rows import CheckRow, failed
from gaudi_launch.extensions.bench.client import Client, ServerError

# of a server that generates text; other servers have health, models, their task, long and speed
NAMES: tuple[str, ...] = ("health", "models", "chat", "stream", "long", "speed", "generate")
# without a plan: as long as most servers accept, short enough for any
_LONG_UNKNOWN = 4096
_ANSWER = 8
_SPEED = 64
# seconds; a faster answer does not show how it was streamed
_NO_TIME = 0.2


def exit_code(rows: list[CheckRow]) -> ExitCode:
    """Return 0 when nothing failed, 4 for a failure of the engine, else 1.

    4: it answered wrongly, or stopped answering during the check.
    """
    failed = [row for row in rows if row.verdict == "fail"]
    if not failed:
        return ExitCode.DONE
    if any(row.fault == "engine" for row in failed):
        return ExitCode.ENGINE
    return ExitCode.FAILED


@dataclass
class _Facts:
    served: server.ServerFacts | None = None
    form: protocols.Form = "chat"
    form_answers: bool = False
    task: str = ""
    text: str = ""


Question = Callable[[], Awaitable[CheckRow]]


async def check(
    client: Client,
    target: Target,
    said: Callable[[CheckRow], None],
    *,
    long: int | None = None,
    model: str | None = None,
) -> list[CheckRow]:
    """Run every check; ``said`` gets each row when it is known.

    ``long`` is the long prompt's length in tokens (default: the edge of the plan's largest prompt
    bucket). Never raises for an answer of the server.
    """
    facts = _Facts()
    rows: list[CheckRow] = []

    async def put(name: str, question: Question) -> bool:
        """Run one check; return True if it passed."""
        began = time.perf_counter()
        try:
            row = await question()
        except ServerError as error:
            row = failed(name, error)
        if not row.seconds:
            row = replace(row, seconds=time.perf_counter() - began)
        rows.append(row)
        said(row)
        return row.verdict != "fail"

    if await put("health", lambda: _health(client)):
        await put("models", lambda: _models(client, facts, model or target.model))
    if facts.served is not None:
        served = facts.served
        # where a chat is refused and another API answers, that API is checked
        if await put("chat", lambda: _first(client, served, facts)) or facts.form_answers:
            for name, question in _more(client, served, facts, target, long).items():
                await put(name, question)
        if served.tgi and not facts.task:
            await put("generate", lambda: _generate(client, served))
    for row in _skipped(facts, {row.name for row in rows}):
        rows.append(row)
        said(row)
    return rows


def _skipped(facts: _Facts, done: set[str]) -> list[CheckRow]:
    """Return a row for each check that was not run."""
    names = NAMES
    if facts.task:
        names = (*NAMES[:2], facts.task, "long", "speed")
    reasons = {}
    if facts.served is not None:
        reasons["generate"] = message("measure.check_no_tgi")
    unasked = message("measure.check_not_asked")
    return [
        CheckRow(name, "skip", reasons.get(name, unasked)) for name in names if name not in done
    ]


def _empty(name: str, answer: protocols.ModelAnswer, values: dict[str, Any]) -> CheckRow:
    """Return the row of an answer without text."""
    sentence = message("measure.check_empty")
    return CheckRow(name, "fail", sentence, answer.seconds, values, "engine")


async def _first(client: Client, served: server.ServerFacts, facts: _Facts) -> CheckRow:
    """Return one chat, or the one request of a server that generates no text."""
    try:
        return await _chat(client, served, facts)
    except ServerError as error:
        if error.kind != "pooled":
            raise
        facts.task = next(task for task, path in POOLED.items() if path == error.detail)
    try:
        return await pooled_rows.first(client, served, facts.task)
    except ServerError as error:
        return failed(facts.task, error)


def _more(
    client: Client, served: server.ServerFacts, facts: _Facts, target: Target, wanted: int | None
) -> dict[str, Question]:
    """Return the checks that follow a good first answer."""
    tokens, why = edge(target, served, 0 if facts.task else _ANSWER)
    if wanted is not None:
        tokens, why = wanted, message("measure.edge_wish")
    if facts.task:
        return {
            "long": lambda: pooled_rows.long(client, served, facts.task, tokens, why),
            "speed": lambda: pooled_rows.speed(client, served, facts.task),
        }
    return {
        "stream": lambda: _stream(client, served, facts),
        "long": lambda: _long(client, served, facts, tokens, why),
        "speed": lambda: _speed(client, served, facts),
    }


async def _health(client: Client) -> CheckRow:
    reply = await client.ask("/health")
    if reply.status == 404:
        return CheckRow("health", "skip", message("measure.check_no_health"))
    if reply.status != 200:
        raise protocols.refused(reply)
    return CheckRow("health", "ok", message("measure.check_health"))


async def _models(client: Client, facts: _Facts, wanted: str | None) -> CheckRow:
    served = await server.look(client, wanted)
    names = ", ".join(served.models)
    values = {"models": list(served.models), "longest": served.longest, "tgi": served.tgi}
    if served.model not in served.models and not served.tgi:
        sentence = message("measure.check_other_model", found=names, wanted=served.model)
        return CheckRow("models", "fail", sentence, values=values, fault="way")
    facts.served = served
    if served.longest is None:
        return CheckRow("models", "ok", message("measure.check_models", names=names), values=values)
    sentence = message("measure.check_models_longest", names=names, tokens=served.longest)
    return CheckRow("models", "ok", sentence, values=values)


_CAPITAL = "What is the capital of France? Answer in one word."


def _shown(text: str) -> str:
    words = " ".join(text.split())
    if len(words) <= 60:
        return words
    return f"{words[:57]}..."


async def _chat(client: Client, served: server.ServerFacts, facts: _Facts) -> CheckRow:
    facts.form, refused = await server.find_form(client, served)
    answer = await protocols.whole(
        client, facts.form, protocols.ask_one(_CAPITAL, 32), served.model
    )
    facts.text = answer.text or answer.thought
    values: dict[str, Any] = {"form": facts.form, "text": answer.text, "input": answer.input}
    values["output"] = answer.tokens
    if refused is not None:
        values["refused"] = {"status": refused.status, "detail": refused.detail}
    if refused is not None and server.is_broken(refused):
        facts.form_answers = True
        sentence = message(
            "measure.check_chat_broken",
            status=refused.status,
            why=refused.detail,
            form=facts.form,
        )
        return CheckRow("chat", "fail", sentence, answer.seconds, values, "engine")
    if not facts.text.strip() and not answer.tokens:
        return _empty("chat", answer, values)
    id = "measure.check_chat_other"
    if facts.form == "chat":
        id = "measure.check_chat"
    sentence = message(id, text=_shown(facts.text), form=facts.form)
    return CheckRow("chat", "ok", sentence, answer.seconds, values)


async def _stream(client: Client, served: server.ServerFacts, facts: _Facts) -> CheckRow:
    answer = await protocols.stream(
        client, facts.form, protocols.ask_one(_CAPITAL, 32), served.model
    )
    values = {
        "pieces": len(answer.pieces),
        "first": answer.first,
        "output": answer.tokens,
        "text": answer.text,
    }
    if answer.first is None and facts.text.strip():
        return _empty("stream", answer, values)
    if answer.tokens > 4 and len(set(answer.pieces)) == 1 and answer.seconds > _NO_TIME:
        # a proxy that buffers the stream, or an engine without streaming; a fast answer may be read
        # in one piece
        return CheckRow(
            "stream",
            "fail",
            message("measure.check_at_once", tokens=answer.tokens),
            0,
            values,
            "engine",
        )
    first = round(1000 * (answer.first or answer.seconds))
    sentence = message("measure.check_stream", pieces=len(answer.pieces), first=first)
    return CheckRow("stream", "ok", sentence, answer.seconds, values)


def edge(target: Target, served: server.ServerFacts, answer: int = _ANSWER) -> tuple[int, Message]:
    """Return the length of the long prompt, in tokens, and its reason.

    It is the plan's largest prompt bucket without context that a request can fill, else the
    server's limit less ``answer`` tokens.
    """
    limit = served.longest
    planned = option(target.plan, "--max-model-len") or ""
    if limit is None and planned.isdigit():
        limit = int(planned)
    # the longest prompt by each limit, and the limit itself
    bounds: list[tuple[int, int]] = []
    if served.longest_input is not None:
        bounds.append((served.longest_input, served.longest_input))
    if limit is not None:
        bounds.append((limit - answer, limit))
    top = _top_bucket(target.plan)
    if top is not None:
        most = min((bound for bound, _ in bounds), default=top)
        return min(top, max(1, most)), message("measure.edge_bucket", bucket=top)
    if not bounds:
        return _LONG_UNKNOWN, message("measure.edge_unknown", tokens=_LONG_UNKNOWN)
    bound, limit = min(bounds, key=itemgetter(0))
    most = max(1, bound)
    if not target.plan and most > _LONG_UNKNOWN:
        return _LONG_UNKNOWN, message("measure.edge_unknown", tokens=_LONG_UNKNOWN)
    return most, message("measure.edge_limit", limit=limit)


def _top_bucket(plan: Mapping[str, Any]) -> int | None:
    buckets = plan.get("buckets")
    prompt = mapping(buckets).get("prompt")
    tops = [
        row[1]
        for row in array(prompt)
        if isinstance(row, list) and len(row) == 3 and isinstance(row[1], int) and row[2] == 0
    ]
    return max(tops, default=None)


async def _long(
    client: Client, served: server.ServerFacts, facts: _Facts, tokens: int, why: Message
) -> CheckRow:
    ruler = await server.measure_ruler(client, served, facts.form)
    prompt, counted = await server.exactly(
        client, served, facts.form, ruler, tokens, server.new_seed()
    )
    answer = await protocols.stream(
        client, facts.form, protocols.ask_one(prompt, _ANSWER), served.model
    )
    input_tokens = value_or(answer.input, counted)
    first = answer.first or answer.seconds
    values = {"wanted": tokens, "input": input_tokens, "first": first, "output": answer.tokens}
    if not answer.tokens:
        return _empty("long", answer, values)
    rate = round(input_tokens / first)
    sentence = message(
        "measure.check_long",
        tokens=input_tokens,
        why=why.render(),
        seconds=f"{first:.2f}",
        rate=rate,
    )
    return CheckRow("long", "ok", sentence, answer.seconds, values)


async def _speed(client: Client, served: server.ServerFacts, facts: _Facts) -> CheckRow:
    room = value_or(served.longest, _SPEED + 48) - 48
    asked = protocols.ask_one(
        "Count from one to a hundred in words.", max(2, min(_SPEED, room)), ignore_eos=served.vllm
    )
    answer = await protocols.stream(client, facts.form, asked, served.model)
    if answer.tokens < 2 or not answer.pieces:
        sentence = message("measure.check_too_short", tokens=answer.tokens)
        return CheckRow("speed", "skip", sentence, answer.seconds, {"output": answer.tokens})
    first, span = answer.pieces[0], answer.pieces[-1] - answer.pieces[0]
    if span <= 0:
        # a fast answer, or a buffered one: its pieces cannot be separated
        id, rate = "measure.check_speed_at_once", answer.tokens / first
    elif answer.stated is not None:
        id, rate = "measure.check_speed", (answer.tokens - 1) / span
    else:
        id, rate = "measure.check_speed_pieces", (answer.tokens - 1) / span
    values = {"tokens_per_second": round(rate, 3), "first": first, "output": answer.tokens}
    sentence = message(id, rate=f"{rate:.1f}", tokens=answer.tokens, first=round(1000 * first))
    return CheckRow("speed", "ok", sentence, answer.seconds, values)


async def _generate(client: Client, served: server.ServerFacts) -> CheckRow:
    asked = protocols.ask_one(_CAPITAL, 16)
    answer = await protocols.whole(client, "generate", asked, served.model)
    streamed = await protocols.stream(client, "generate", asked, served.model)
    values = {"text": answer.text, "output": answer.tokens, "pieces": len(streamed.pieces)}
    if not answer.text.strip() and not answer.tokens:
        return _empty("generate", answer, values)
    sentence = message(
        "measure.check_generate", text=_shown(answer.text), pieces=len(streamed.pieces)
    )
    return CheckRow("generate", "ok", sentence, answer.seconds + streamed.seconds, values)
