"""The text of simulated answers, with a tokenizer of one token for each term or mark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from gaudi_launch.extensions.simulated.engine import RUNTIME

if TYPE_CHECKING:
    from gaudi_simulated_text import AnswerText

END = 0


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(RUNTIME))
    yield


class Tokenizer:
    """Gives each piece of text a number, in the order of its first use."""

    def __init__(self) -> None:
        self.pieces = ["<end>"]

    def encode(self, text: str) -> list[int]:
        found = re.findall(r" ?[A-Za-z]+|\s|[^A-Za-z\s]", text)
        self.pieces += [piece for piece in dict.fromkeys(found) if piece not in self.pieces]
        return [self.pieces.index(piece) for piece in found]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.pieces[token] for token in tokens)


def made(tokenizer: Tokenizer, **changes: Any) -> AnswerText:
    from gaudi_simulated_text import AnswerText

    return AnswerText(tokenizer.encode, 7, **changes)


def whole(text: AnswerText, answer: Any, most: int = 5000) -> list[int]:
    found: list[int] = []
    while len(found) < most and found[-1:] != [END]:
        found.append(text.token(answer, len(found)))
    return found


def row(*tokens: int) -> list[int]:
    """Return a grammar's bitmask that allows these tokens."""
    bits = [0] * 64
    for token in tokens:
        bits[token // 32] |= 1 << token % 32
    # vLLM's rows are signed
    return [number - (1 << 32) if number >> 31 else number for number in bits]


def test_an_answer_has_the_fewest_tokens_that_were_required() -> None:
    text = made(Tokenizer())
    lengths = [len(whole(text, text.answer([n], "", END, least=900))) for n in range(10)]
    assert min(lengths) > 900


def test_reasoning_ends_before_the_answer() -> None:
    tokenizer = Tokenizer()
    mark = tokenizer.encode("@")[0]
    text = made(tokenizer, thought_end=mark)
    said = tokenizer.decode(whole(text, text.answer([1], "", END)))
    assert said.startswith("This answer is simulated.@ ")
    answer = text.answer([1], "", END)
    everything = row(*range(len(tokenizer.pieces)))
    reasoning = [text.allowed(answer, everything, index) for index in range(len(text.opening))]
    assert reasoning == text.opening


def test_a_string_of_a_grammar_is_closed_after_three_terms() -> None:
    tokenizer = Tokenizer()
    text = made(tokenizer)
    answer = text.answer([1], "", END)
    quote = tokenizer.encode('"')[0]
    inside = row(
        *(token for token, piece in enumerate(tokenizer.pieces) if piece not in ("<end>",))
    )
    said = [text.allowed(answer, inside, index) for index in range(4)]
    assert said[3] == quote
    assert re.fullmatch(r"[a-z]+ [a-z]+ [a-z]+", tokenizer.decode(said[:3]))


def test_what_ends_a_structured_answer_is_preferred() -> None:
    tokenizer = Tokenizer()
    text = made(tokenizer)
    answer = text.answer([1], "", END)
    brace, comma, seven = (tokenizer.encode(mark)[0] for mark in "},7")
    assert text.allowed(answer, row(seven, comma, brace), 9) == brace
    assert text.allowed(answer, row(seven, comma), 9) == comma
    assert text.allowed(answer, row(seven), 9) == seven
    assert text.allowed(answer, row(END, brace), 9) == END
    # where a tool call may come, plain text is written until its natural end
    plain = text.token(answer, 9)
    assert text.allowed(answer, row(END, brace, plain), 9) == plain
    assert text.allowed(answer, row(END, brace, plain), answer.length) == END


def test_a_space_is_taken_only_where_nothing_else_is_allowed() -> None:
    tokenizer = Tokenizer()
    text = made(tokenizer)
    answer = text.answer([1], "", END)
    space, odd = tokenizer.encode(" ")[0], 40 * 32 + 31
    assert text.allowed(answer, row(space, odd), 9) == odd
    assert text.allowed(answer, row(space), 9) == space
