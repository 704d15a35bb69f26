"""The text of simulated answers: plain sentences, or what a grammar allows.

Standard library only; a grammar's bitmask is a row of 32-bit numbers of vLLM's xgrammar backend.
"""

from __future__ import annotations

import random
import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

# each answer begins with the first one
OPENING = "This answer is simulated."
SENTENCES = (
    "No model has read the question.",
    "The text was chosen before the request came.",
    "Only the time between them follows a rule.",
    "A prompt is read in one step, or in several parts.",
    "Each later step adds one token to every answer.",
    "Long answers keep more blocks of the cache in use.",
    "A new request waits until a place in the batch is free.",
    "The scheduler decides which requests share a step.",
    "Equal beginnings of prompts are read from the cache.",
    "The counters on the metrics page are real.",
    "A gateway sees the same interface as in production.",
    "Dashboards and alerts can be tried before cards arrive.",
    "The queue grows when requests come faster than steps end.",
    "A larger batch gives more tokens per second.",
    "A smaller batch gives each answer sooner.",
    "Times come from a model of the cards, not from a measurement.",
)
# the natural length of an answer, in tokens: about two thirds are between 90 and 360 (assumed)
_MEDIAN_TOKENS, _SPREAD, _LEAST, _MOST = 180, 0.7, 16, 2000
_RING_TOKENS = 4096
MOST_LOGPROBS = 64
# terms in a string of a structured answer
_TERMS_IN_STRING = 3
_BITS = 32
# marks that end or continue a structured answer, the preferred ones first
_STRUCTURE = ('"', "{", "}", ' "', " ")
_MARKS = ("}", "]", ",", ":", "{", "[", " {", ' "')
_DIGITS = "7123456890"

Encode = Callable[[str], Sequence[int]]


class Row(Protocol):
    """A row of a bitmask: numbers by index."""

    def __getitem__(self, index: int, /) -> int: ...
    def __len__(self) -> int: ...


@dataclass
class Answer:
    """The plan of one answer: its start in the ring, and its length in tokens.

    ``ending`` is the token of its end, None where the request ignores it. ``terms`` counts those of
    the current string, ``said`` all of a structured answer. ``opened``: a value of any type begins.
    """

    start: int
    length: int
    ending: int | None
    terms: int = 0
    said: int = 0
    opened: bool = False


class AnswerText:
    """Tokens of plain sentences in the order of the seed, as one ring."""

    def __init__(self, encode: Encode, seed: int, thought_end: int | None = None) -> None:
        """Make the ring with the tokenizer's ``encode`` (without special tokens).

        ``thought_end`` is the token that ends the reasoning of a model, which is the first
        sentence.
        """
        self.seed = seed
        self._thinks = thought_end is not None
        chance = random.Random(seed)
        self.opening = list(encode(OPENING))
        if thought_end is not None:
            self.opening.append(thought_end)
        self.ring: list[int] = []
        self._ends: list[int] = []
        while len(self.ring) < _RING_TOKENS:
            order = list(SENTENCES)
            chance.shuffle(order)
            for sentence in order:
                self.ring += encode(f" {sentence}")
                self._ends.append(len(self.ring))
        # the other tokens of made-up probabilities; vLLM allows 20 for each position
        self.common = list(dict.fromkeys(self.ring))[:MOST_LOGPROBS]
        plain = _plain_terms()
        self._terms = _single(encode, [f" {term}" for term in plain])
        self._first_terms = _single(encode, plain)
        self._marks = _single(encode, _MARKS)
        self._digits = _single(encode, _DIGITS)
        self._structure = [_single(encode, [mark]) for mark in _STRUCTURE]
        self._spaces = {
            token for space in (" ", "\n", "\t", "  ", "\n\n", "\r") for token in encode(space)
        }

    def answer(
        self, prompt: Sequence[int], salt: str, ending: int | None, least: int = 0
    ) -> Answer:
        """Return the answer to a prompt; equal prompts and salts give equal answers.

        ``ending`` is the token of its natural end, ``least`` its fewest tokens.
        """
        # the end of a prompt differs where its beginning is shared
        read = array("q", prompt[-256:]).tobytes()
        chance = random.Random(
            zlib.crc32(read) ^ zlib.crc32(salt.encode()) ^ len(prompt) ^ self.seed
        )
        start = chance.choice(self._ends)
        drawn = int(chance.lognormvariate(0.0, _SPREAD) * _MEDIAN_TOKENS)
        wanted = max(least, min(max(drawn, _LEAST), _MOST))
        # the length, ``wanted`` or more, at which a sentence ends
        length = max(0, wanted - len(self.opening))
        turns, at = divmod(start + length, len(self.ring))
        end = next((end for end in self._ends if end >= at), len(self.ring))
        return Answer(start, len(self.opening) + turns * len(self.ring) + end - start, ending)

    def token(self, answer: Answer, index: int) -> int:
        """Return the token of this index of an answer."""
        if answer.ending is not None and index >= answer.length:
            return answer.ending
        if index < len(self.opening):
            return self.opening[index]
        return self.ring[(answer.start + index - len(self.opening)) % len(self.ring)]

    def allowed(self, answer: Answer, row: Row, index: int) -> int:
        """Return a token that a grammar allows: an answer that is short, and ends.

        Reasoning comes before a grammar applies.
        ``row`` is its bitmask: bit ``token % 32`` of number ``token // 32``.
        """
        if self._thinks and index < len(self.opening) and _is_set(row, self.opening[index]):
            return self.opening[index]
        if answer.ending is not None and _is_set(row, answer.ending):
            # plain text around a tool call that may come
            plain = self.token(answer, index)
            return plain if _is_set(row, plain) else answer.ending
        return self._of_value(answer, row)

    def _of_value(self, answer: Answer, row: Row) -> int:
        """Return a token of a value: an empty object, or a string of a few terms."""
        terms = self._terms if answer.terms else self._first_terms
        term = _first_set(row, terms, answer.start + answer.said)
        quote, begin, end, spaced, space = (_first_set(row, marks) for marks in self._structure)
        if answer.opened and end is not None:
            return end
        # outside of a string, a value of any type is an empty object: the arguments of a tool
        # without a schema are one
        answer.opened = term is None and quote is not None and begin is not None
        if answer.opened and begin is not None:
            return begin
        if term is not None and answer.terms < _TERMS_IN_STRING:
            answer.terms += 1
            answer.said += 1
            return term
        if quote is not None:
            answer.terms = 0
            return quote
        # where plain text is allowed but no quote, a string has to continue
        if term is not None:
            return term
        # the type of a value is chosen after the space
        spaces = [space] if spaced is not None and space is not None else []
        found = _first_set(row, [*spaces, *self._marks, *self._digits])
        return self._any(row) if found is None else found

    def _any(self, row: Row) -> int:
        """Return the first token that is allowed; a space only without others."""
        for at in range(len(row)):
            for bit in range(_BITS if row[at] else 0):
                token = at * _BITS + bit
                if _is_set(row, token) and token not in self._spaces:
                    return token
        return _first_set(row, sorted(self._spaces)) or 0


def _plain_terms() -> list[str]:
    """Return the lower-case terms of the sentences, each once."""
    found: dict[str, None] = {}
    for sentence in SENTENCES:
        for term in sentence.rstrip(".").replace(",", "").split():
            if term.islower() and len(term) > 2:
                found[term] = None
    return list(found)


def _single(encode: Encode, texts: Iterable[str]) -> list[int]:
    """Return the tokens of the texts that are one token."""
    return [tokens[0] for text in texts if len(tokens := encode(text)) == 1]


def _is_set(row: Row, token: int) -> bool:
    at, bit = divmod(token, _BITS)
    return at < len(row) and bool((row[at] >> bit) & 1)


def _first_set(row: Row, tokens: Sequence[int], start: int = 0) -> int | None:
    """Return the first of these tokens that is set, from an index on."""
    for at in range(len(tokens)):
        token = tokens[(start + at) % len(tokens)]
        if _is_set(row, token):
            return token
    return None
