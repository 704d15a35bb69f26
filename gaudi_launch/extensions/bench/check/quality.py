"""Check a server's answers: right, and the same alone as in a full batch.

A fixed set of questions with checkable answers (quality.json, written for this program), greedy. A
small model is often wrong: the share of right answers is a figure to compare, not a verdict.
Answers that are empty, that repeat themselves or have no finite logprobs are one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import codec, paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.reader import beside, read_json
from gaudi_launch.core.services.endpoint import Target, option
from gaudi_launch.extensions.bench import protocols, server
from gaudi_launch.extensions.bench.check import reference
from gaudi_launch.extensions.bench.client import Client, ServerError

_log = logging.getLogger(__name__)

KIND = "quality"
_TOKENS = 32
# the batch where no plan states one, and the largest that is sent
_BATCH, _MOST_BATCH = 32, 256
_ASK = {"en": "Answer with one word or number. {}", "zh": "用一个词或数字回答。{}"}
# the tail of a prompt at a bucket's edge
_TAIL = " What is 2 plus 3? Answer with one number."
# one character again and again, which broken weights and caches give ("!!!!"); and a phrase, which
# a sound small model gives, too: 5 and 4 of 100 answers of a 135M model in two runs, so it is a
# fault from 20 % on
_RUN = re.compile(r"(\S)\1{11,}")
_REPEATED = re.compile(r"(\S.{1,19}?)\1{7,}", re.DOTALL)
_MANY_REPEATED = 0.2
# two-sided; a difference that is as likely without a cause is not shown as one
_CHANCE = 0.05


@dataclass(frozen=True)
class QualityAnswer:
    """The answer to one question: alone, and in the full batch.

    ``trouble``: "", "empty", "run", "repeated", "nan" or "error".
    """

    item: str
    text: str
    right: bool
    trouble: str = ""
    equal: bool = True


@dataclass(frozen=True)
class Quality:
    """All answers of a server. ``edges``: prompt tokens and the trouble there.

    ``reference``: its first tokens against transformers; None for a large or unknown model.
    """

    model: str
    batch: int
    answers: tuple[QualityAnswer, ...]
    edges: tuple[tuple[int, str], ...] = ()
    reference: reference.ReferenceMatch | None = None

    @property
    def right(self) -> float:
        return sum(each.right for each in self.answers) / len(self.answers)

    @property
    def equal(self) -> float:
        return sum(each.equal for each in self.answers) / len(self.answers)

    @property
    def repeated(self) -> int:
        return sum(each.trouble == "repeated" for each in self.answers)

    @property
    def troubles(self) -> list[str]:
        """Return what is a fault of the server, with its question or prompt length."""
        few = self.repeated < _MANY_REPEATED * len(self.answers)
        harmless = ("", "repeated") if few else ("",)
        bad = [each for each in self.answers if each.trouble not in harmless]
        found = [f"{each.item}: {each.trouble}" for each in bad]
        found += [f"{tokens} tokens: {trouble}" for tokens, trouble in self.edges if trouble]
        return [*found, "transformers: other logprobs"] if self.differs else found

    @property
    def differs(self) -> bool:
        """Report whether its logprobs are not those of the weights."""
        return self.reference is not None and self.reference.bad


@dataclass(frozen=True)
class QualityChange:
    """Two servers, question by question.

    ``chance``: the probability of a difference as large where there is none (McNemar's exact test).
    """

    before: float
    after: float
    lost: tuple[str, ...]
    gained: tuple[str, ...]
    other_text: int
    chance: float

    @property
    def worse(self) -> bool:
        """Report whether more answers were lost than chance explains."""
        return len(self.lost) > len(self.gained) and self.chance < _CHANCE


def items() -> list[tuple[str, str, list[str]]]:
    """Return the name, prompt and right answers of each question."""
    rows = []
    for language, questions in beside(__file__).items():
        for number, (question, right) in enumerate(questions, 1):
            rows.append((f"{language}-{number}", _ASK[language].format(question), right))
    return rows


def is_right(text: str, right: Sequence[str]) -> bool:
    """Return whether an answer has one of the right ones, not as a part."""
    for each in right:
        pattern = re.escape(each)
        if each.isascii():
            pattern = rf"(?<![A-Za-z0-9]){pattern}(?![A-Za-z0-9]|[.,]\d)"
        if re.search(pattern, text, re.IGNORECASE if len(each) > 2 else 0):
            return True
    return False


def trouble_of(text: str, logprobs: Sequence[float | None]) -> str:
    """Return what is wrong with an answer whatever the question is; "" for nothing."""
    if any(each is None or math.isnan(each) for each in logprobs):
        return "nan"
    if not text.strip():
        return "empty"
    if _RUN.search(text):
        return "run"
    return "repeated" if _REPEATED.search(text) else ""


@dataclass(frozen=True)
class _Asked:
    client: Client
    served: server.ServerFacts
    form: protocols.Form

    async def answer(self, prompt: str) -> tuple[str, str]:
        """Return the text of an answer and its trouble."""
        question = protocols.ask_one(prompt, _TOKENS)
        body = protocols.body(self.form, question, self.served.model, stream=False)
        body["logprobs"] = True if self.form == "chat" else 1
        path = "/v1/chat/completions" if self.form == "chat" else "/v1/completions"
        try:
            reply = await self.client.ask(path, body)
        except ServerError as error:
            _log.debug("no answer to a question: %s", error)
            return "", "error"
        choices = array(mapping(reply.document).get("choices"))
        if reply.status != 200 or not choices:
            return "", "error"
        choice = mapping(choices[0])
        message = mapping(choice.get("message"))
        text = message.get("content") or message.get("reasoning_content") or choice.get("text")
        return str(text or ""), trouble_of(str(text or ""), _logprobs(choice))


def _logprobs(choice: Mapping[str, Any]) -> list[float | None]:
    """Return the logprob of each token; vLLM writes null for one that is not finite."""
    found = mapping(choice.get("logprobs"))
    rows = [mapping(each).get("logprob") for each in array(found.get("content"))]
    return rows or list(array(found.get("token_logprobs")))


def run(client: Client, target: Target, model: str | None) -> Quality:
    """Ask all questions, and for first tokens. Raises LaunchError without an answer."""
    try:
        found = asyncio.run(ask(client, target, model))
        weights = reference.weights_of(target)
        if weights is None:
            return found
        rows = asyncio.run(reference.answers(client, found.model))
        return replace(found, reference=reference.match(rows, target, weights))
    except ServerError as error:
        code = ExitCode.ENGINE if error.status >= 500 else ExitCode.FAILED
        why, status = error.detail, error.status
        raise LaunchError(error.sentence, code, why=why, status=status) from None


async def ask(client: Client, target: Target, model: str | None) -> Quality:
    """Send the questions one by one, then in full batches, then prompts at edges.

    Raises ServerError where no model answers.
    """
    served = await server.look(client, model or target.model)
    form = await server.pick_form(client, served)
    asked = _Asked(client, served, form)
    answers = []
    for name, prompt, right in items():
        text, trouble = await asked.answer(prompt)
        answers.append(QualityAnswer(name, text, is_right(text, right), trouble))
    batch = _batch(target)
    answers = await _in_batches(asked, answers, batch)
    edges = await _at_edges(asked, _edges(target, served))
    return Quality(served.model, batch, tuple(answers), edges)


async def _in_batches(
    asked: _Asked, answers: list[QualityAnswer], batch: int
) -> list[QualityAnswer]:
    """Ask the same in batches of this size, and compare the answers."""
    prompts, found = items(), list(answers)
    for begin in range(0, len(prompts), batch):
        # the last batch is filled from the beginning
        places = [at % len(prompts) for at in range(begin, begin + batch)]
        texts = await asyncio.gather(*(asked.answer(prompts[at][1]) for at in places))
        for at, (text, trouble) in zip(places, texts, strict=True):
            same = found[at].equal and text == found[at].text
            found[at] = replace(found[at], equal=same, trouble=found[at].trouble or trouble)
    return found


def _batch(target: Target) -> int:
    """Return the batch of the plan's largest decode bucket, else its sequences."""
    decode = array(mapping(target.plan.get("buckets")).get("decode"))
    largest = max((row[0] for row in decode if isinstance(row, list) and row), default=0)
    planned = option(target.plan, "--max-num-seqs") or ""
    found = largest or (int(planned) if planned.isdigit() else _BATCH)
    return min(found, _MOST_BATCH)


def _edges(target: Target, served: server.ServerFacts) -> list[int]:
    """Return prompt lengths at and directly above the edges of some prompt buckets."""
    prompt = array(mapping(target.plan.get("buckets")).get("prompt"))
    lengths = sorted({row[1] for row in prompt if isinstance(row, list) and len(row) == 3})
    most = (served.longest or lengths[-1]) - _TOKENS if lengths else 0
    chosen = {lengths[0], lengths[len(lengths) // 2]} if lengths else set()
    return sorted(tokens for edge in chosen for tokens in (edge, edge + 1) if 64 < tokens <= most)


async def _at_edges(asked: _Asked, lengths: Sequence[int]) -> tuple[tuple[int, str], ...]:
    """Ask with prompts of these lengths, and return each length and its trouble."""
    if not lengths:
        return ()
    ruler = await server.measure_ruler(asked.client, asked.served, asked.form)
    count = server.counter(asked.client, asked.served, asked.form)

    async def counted(text: str) -> int | None:
        return await count(text + _TAIL)

    found = []
    for tokens in lengths:
        prompt, length = await server.fitted(counted, ruler, tokens, tokens)
        _, trouble = await asked.answer(prompt + _TAIL)
        found.append((length, trouble))
    return tuple(found)


def compare(before: Quality, after: Quality) -> QualityChange:
    """Return what became of each question. Questions of one server only are left out."""
    old = {each.item: each for each in before.answers}
    both = [(old[each.item], each) for each in after.answers if each.item in old]
    lost = tuple(b.item for a, b in both if a.right and not b.right)
    gained = tuple(b.item for a, b in both if b.right and not a.right)
    other = sum(a.text != b.text for a, b in both)
    count = len(lost) + len(gained)
    tail = sum(comb(count, k) for k in range(min(len(lost), len(gained)) + 1))
    chance = min(1.0, 2 * tail / 2**count)
    return QualityChange(before.right, after.right, lost, gained, other, chance)


def exit_code(found: Quality, change: QualityChange | None) -> ExitCode:
    """Return ENGINE for a fault of an answer, or where more was lost than by chance."""
    if found.troubles or (change is not None and change.worse):
        return ExitCode.ENGINE
    return ExitCode.DONE


def write(path: Path, found: Quality) -> None:
    """Keep the answers of a server. Raises LaunchError (FAILED)."""
    text = json.dumps({"schema": 1, "kind": KIND, **codec.write(found)}, ensure_ascii=False)
    try:
        paths.write_whole(path, text + "\n")
    except OSError as error:
        raise file_error("measure.quality_write", error, path) from None


def read(path: Path) -> Quality:
    """Return answers that were kept. Raises LaunchError (USAGE)."""
    try:
        document = mapping(read_json(path))
        if document.get("kind") == KIND:
            return codec.read(Quality, document)
        why = f"kind != {KIND}"
    except (OSError, ValueError) as error:
        why = str(error)
    raise LaunchError("measure.quality_read", ExitCode.USAGE, path=str(path), why=why)
