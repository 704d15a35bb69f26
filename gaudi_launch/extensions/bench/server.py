"""A server's facts: models, limits, task; and texts of a requested length."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.services.server_answers import POOLED
from gaudi_launch.extensions.bench import pooling
from gaudi_launch.extensions.bench.client import Client, Reply, ServerError
from gaudi_launch.extensions.bench.protocols import (
    FORMS,
    Form,
    ask_one,
    first_model,
    refused,
    whole,
)

# short common English nouns: nearly every vocabulary has each as one token after a space
_LIST = """
the of and to in is that it was for on are with as his they be at one have this from or had by but
some what there we can out other were all your when up use how said an each she which do their time
if will way about many then them would like so these her long make thing see him two has look more
day could go come did no most my over
"""
WORDS = tuple(_LIST.split())
# this number of nouns of a text is drawn for its seed alone
_HEAD = 12
# a text of a requested length is found with at most this number of requests: as many as halve the
# longest text's number of nouns down to one
_COUNTS = 20

# engines/simulated/runtime/gaudi_simulated_marks.py
SIMULATED_OWNER = "simulated"


@dataclass(frozen=True)
class ServerFacts:
    """Facts of a server. ``model`` is its name in requests.

    ``longest`` is input plus output in tokens, None when unknown; ``longest_input`` likewise (TGI).
    ``tgi``: it has TGI's paths. ``vllm``: its models show that. ``simulated``: they show that its
    cards are simulated.
    """

    model: str
    models: tuple[str, ...]
    longest: int | None = None
    longest_input: int | None = None
    tgi: bool = False
    vllm: bool = False
    simulated: bool = False


def _first_model(reply: Reply) -> Mapping[str, Any] | None:
    """Return the first model of an answer; None for an error or without one."""
    if reply.status != 200:
        return None
    return first_model(reply.document)


async def look(client: Client, model: str | None = None) -> ServerFacts:
    """Query the models and limits. Raises ServerError."""
    info = await client.ask("/info")
    facts: dict[str, object] = {}
    if info.status == 200:
        facts = mapping(info.document)
    tgi = "model_id" in facts
    reply = await client.ask("/v1/models")
    entry = _first_model(reply)
    if entry is None:
        if tgi and reply.status in (200, 404):
            # TGI before it had /v1/models
            return _with_limits(
                ServerFacts(str(facts["model_id"]), (str(facts["model_id"]),), tgi=True), facts
            )
        if reply.status != 200:
            raise refused(reply)
        raise ServerError("protocol", "/v1/models names no model")
    names = tuple(
        e["id"]
        for e in reply.document["data"]
        if isinstance(e, dict) and isinstance(e.get("id"), str)
    )
    owner = entry.get("owned_by")
    served = ServerFacts(
        model or names[0],
        names,
        tgi=tgi,
        vllm=owner in ("vllm", SIMULATED_OWNER),
        simulated=owner == SIMULATED_OWNER,
    )
    longest = entry.get("max_model_len")
    if _length(longest):
        return replace(_with_limits(served, facts), longest=longest)
    return _with_limits(served, facts)


def _length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9


def _with_limits(served: ServerFacts, facts: dict[str, object]) -> ServerFacts:
    limits = {
        "longest": facts.get("max_total_tokens"),
        "longest_input": facts.get("max_input_tokens"),
    }
    known: dict[str, Any] = {name: value for name, value in limits.items() if _length(value)}
    return replace(served, **known)


def is_broken(refused: ServerError) -> bool:
    """Return True where the server has a chat and refuses it.

    A model without a chat template does not count.
    """
    if refused.status in (404, 405, 501):
        return False
    return _NO_TEMPLATE.search(refused.detail) is None


# transformers: tokenization_utils_base.py; vLLM: entrypoints/chat_utils.py; TGI:
# infer/chat_template.rs; and models that are not for chats by the server's answer
_NO_TEMPLATE = re.compile(
    r"(?i)chat template is no longer allowed|provide a chat template|template not found|"
    r"does not support|no chat template|chat_template is not set"
)


async def pick_form(client: Client, served: ServerFacts) -> Form:
    """Return the first form that answers. Raises as `find_form` does."""
    form, _ = await find_form(client, served)
    return form


async def find_form(client: Client, served: ServerFacts) -> tuple[Form, ServerError | None]:
    """Return the first form that answers, and the error of those before it.

    The forms are chat, completions (for models without a chat template) and TGI's generate. Raises
    ServerError: of the kind "pooled" for a server without text, with the path of its task; else
    that of chat when no form answers.
    """
    problem: ServerError | None = None
    for form in FORMS:
        if form == "generate" and not served.tgi:
            continue
        try:
            await whole(client, form, ask_one("1", 1), served.model)
        except ServerError as error:
            problem = problem or error
            # 501: the model does not support this request
            broken = error.status >= 500 and error.status != 501
            if error.kind != "status" or error.status in (401, 403) or broken:
                raise error from None
        else:
            return form, problem
    assert problem is not None
    task = await pooling.pick(client, served.model)
    if task is not None:
        raise ServerError("pooled", POOLED[task])
    raise problem


@dataclass(frozen=True)
class Ruler:
    """The number of tokens of a text by its number of nouns: a measured line.

    ``each`` tokens per noun, ``fixed`` those of the chat template; two prompts to this server
    determine it. ``measured``: False where the server counts none.
    """

    each: float = 1.0
    fixed: float = 0.0
    measured: bool = False

    def words(self, tokens: int) -> int:
        """Return how many nouns make at most this number of tokens; at least one."""
        return max(1, int((tokens - self.fixed) / self.each + 1e-9))


Count = Callable[[str], Awaitable[int | None]]


async def measure_ruler(client: Client, served: ServerFacts, form: Form) -> Ruler:
    """Measure the input of two short requests. Raises ServerError."""

    async def count(prompt: str) -> int | None:
        return (await whole(client, form, ask_one(prompt, 1), served.model)).input

    return await ruler_of(count, served.longest)


async def ruler_of(count: Count, longest: int | None) -> Ruler:
    """Return the line through two short texts that ``count`` counts.

    ``longest`` is the server's limit in tokens.
    """
    few, more = 16, min(144, max(32, (longest or 1024) // 2))
    counts = []
    for words in (few, more):
        counted = await count(text(words, words))
        if counted is None:
            return Ruler()
        counts.append(counted)
    each = (counts[1] - counts[0]) / (more - few)
    if each <= 0:
        return Ruler()
    return Ruler(each, counts[0] - few * each, True)


def new_seed() -> int:
    """Return a new seed, for texts that are in no server's prefix cache.

    It is below 2**31, as other tools require.
    """
    return time.time_ns() // 1000 % 2**31


def text(words: int, seed: int) -> str:
    """Return a text of this number of nouns, different for every seed.

    It differs from the first noun on, so that no prefix cache has it. A longer text of a seed
    begins with its shorter one.
    """
    chance = random.Random(seed)
    head = chance.choices(WORDS, k=min(words, _HEAD))
    # drawing each noun would delay a client that sends thousands of long prompts at their times
    pool = _pool()
    start, rest = chance.randrange(len(pool)), words - len(head)
    tail = pool[start : start + rest]
    while len(tail) < rest:
        tail += pool[: rest - len(tail)]
    return " ".join(head + tail)


@cache
def _pool() -> list[str]:
    return random.Random(0).choices(WORDS, k=1 << 16)


async def exactly(
    client: Client, served: ServerFacts, form: Form, ruler: Ruler, tokens: int, seed: int
) -> tuple[str, int]:
    """Return a text with a prompt of at most ``tokens``, as close as possible.

    Also return its length, counted by the server's /tokenize (vLLM has it) or by the ruler's line
    without it. Raises ServerError.
    """
    return await fitted(counter(client, served, form), ruler, tokens, seed)


async def fitted(count: Count, ruler: Ruler, tokens: int, seed: int) -> tuple[str, int]:
    """Return a text of this length by ``count``, or by the ruler if that is None."""
    words = ruler.words(tokens)
    best = text(1, seed), 0
    # numbers of nouns: the largest that is known to fit, and the smallest that does not
    fits = 0
    exceeds: int | None = None
    for _ in range(_COUNTS):
        found = text(words, seed)
        counted = await count(found)
        if counted is None:
            return found, round(words * ruler.each + ruler.fixed)
        if counted <= tokens:
            fits, best = words, (found, counted)
        else:
            exceeds = words
        if counted == tokens or exceeds == fits + 1:
            break
        # never a step of zero
        step = round((tokens - counted) / ruler.each) or int(math.copysign(1, tokens - counted))
        words = _between(fits, exceeds, words + step)
    return best


def _between(fits: int, exceeds: int | None, words: int) -> int:
    """Return this number if it is between both others, else one that is.

    Where a server's nouns have another length than the ruler's, it may be anywhere.
    """
    if exceeds is None:
        return max(fits + 1, words)
    if fits < words < exceeds:
        return words
    return (fits + exceeds) // 2


def counter(client: Client, served: ServerFacts, form: Form) -> Count:
    """Return a function that counts a prompt's tokens by the server's /tokenize.

    Return None where it has none. Raises ServerError.
    """

    async def count(prompt: str) -> int | None:
        question: dict[str, object] = {"model": served.model}
        if form == "chat":
            question |= {
                "messages": [{"role": "user", "content": prompt}],
                "add_generation_prompt": True,
            }
        else:
            question["prompt"] = prompt
        reply = await client.ask("/tokenize", question)
        counted = mapping(reply.document).get("count")
        if reply.status != 200 or not isinstance(counted, int):
            return None
        return counted

    return count
