"""Find the pages, commands and questions about a term.

Each of them is a document: a title and its text. A term counts by how few documents have it, more
in a title than in the text, and most where one passage has all of them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from gaudi_launch.cli.doc_pages import DocsPage, find, pages
from gaudi_launch.cli.table import COMMANDS
from gaudi_launch.cli.translated import translated
from gaudi_launch.commands.help.questions import Question, every_question
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.reader import beside

# pages, and the most of the other kinds: the screen has 24 rows
_PAGES = 3
_MOST = 6
# lists of all options and keys: a section of the first counts for its command
_LISTS = ("commands", "json", "questions", "index")
_SECTION = re.compile(r"(?m)^#{2,4} `?([^`\n]+)`?$")
_HEADING = re.compile(r"^#+ ")
_WORD = re.compile(r"[a-z0-9]+|[\u4e00-\u9fff]+")
_ENDINGS = ("ing", "ed", "es", "s", "e")
_SHORTEST_STEM = 3
# shares of a term's weight: in a title, in a heading, for another name, for one character
_TITLE, _HEADED, _SYNONYM, _CHARACTER = 3.0, 1.5, 0.5, 0.2
# below this share of the best score a document is about something else
_RELATED = 0.25


@dataclass(frozen=True)
class Found:
    """Pages, commands and questions about a term, the best first.

    Commands are paths without the program's name, each with its line of help.
    """

    pages: tuple[DocsPage, ...]
    commands: Mapping[str, str]
    questions: tuple[Question, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.commands or self.questions or self.pages)


@dataclass(frozen=True)
class _Document:
    """Terms of a title, and of each passage with those of its heading."""

    title: frozenset[str]
    passages: tuple[tuple[frozenset[str], frozenset[str]], ...]

    @property
    def terms(self) -> frozenset[str]:
        """Return every term."""
        return self.title.union(*(heading | passage for heading, passage in self.passages))


def search(term: str) -> Found:
    """Return what is about a term, in the language in force."""
    by_name = {page.name: page for page in pages() if page.name not in _LISTS}
    _, *parts = _SECTION.split(find("commands").text)
    sections = {
        name: section
        for name, section in zip(parts[::2], parts[1::2], strict=True)
        if name.split()[0] in COMMANDS
    }
    questions = {each.id: each for named in every_question().values() for each in named}
    answered = {name: " ".join(_questions_of(name, questions.values())) for name in sections}
    found_pages = _best(
        term,
        {
            name: _document(f"{name} {page.title} {page.about}", page.text)
            for name, page in by_name.items()
        },
    )
    found_commands = _best(
        term,
        {
            name: _document(f"{name} {_line(name, part)} {answered[name]}", part)
            for name, part in sections.items()
        },
    )
    # in the language in force and in English
    about = {
        id: _document(f"{text(id)} {text(id, 'en')}", each.arguments.lower())
        for id, each in questions.items()
    }
    found_questions = _best(term, {id: each for id, each in about.items() if _matches(term, each)})
    return Found(
        tuple(by_name[name] for name in found_pages[:_PAGES]),
        {name: _line(name, sections[name]) for name in found_commands[:_MOST]},
        tuple(questions[id] for id in found_questions[:_MOST]),
    )


def _matches(term: str, question: _Document) -> bool:
    """Return True for a question with more than half of what is searched."""
    words = {each for each in _terms(term) if _share_of(each) == 1.0}
    return 2 * len(words & question.title) > len(words)


def _questions_of(command: str, questions: Iterable[Question]) -> Iterator[str]:
    """Yield the texts of the questions that a command answers."""
    for each in questions:
        if f"{each.arguments} ".startswith(f"{command} "):
            yield text(each.id)


def _line(name: str, section: str) -> str:
    """Return the line of help of a command, or its section's first paragraph."""
    if name in COMMANDS:
        return translated(COMMANDS[name][1])
    # the usage is before it
    return section.strip().split("\n\n")[1]


def _best(term: str, documents: Mapping[str, _Document]) -> Sequence[str]:
    """Return the names of the documents about a term, the best first."""
    having = Counter(each for document in documents.values() for each in document.terms)
    weights = {
        each: share * math.log(1 + len(documents) / having[each])
        for each, share in _wanted(term).items()
        if having[each]
    }
    scores = {name: _score(document, weights) for name, document in documents.items()}
    least = _RELATED * max(scores.values(), default=0.0)
    related = [name for name, score in scores.items() if score and score >= least]
    return sorted(related, key=lambda name: -scores[name])


def _score(document: _Document, weights: Mapping[str, float]) -> float:
    """Return the weight of the terms of a title, and of the passages by their rank."""

    def weight(terms: frozenset[str]) -> float:
        return sum(weights[each] for each in terms & weights.keys())

    passages = sorted(
        (_HEADED * weight(heading) + weight(passage) for heading, passage in document.passages),
        reverse=True,
    )
    # the second best passage counts a quarter, the third a ninth
    content = sum(score / rank**2 for rank, score in enumerate(passages, start=1))
    return _TITLE * weight(document.title) + content


def _document(title: str, content: str) -> _Document:
    """Return the terms of a page by passage.

    A passage is a paragraph, a row of a table or an entry of a list.
    """
    return _Document(frozenset(_terms(title)), tuple(_passages(content)))


def _passages(content: str) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    heading: frozenset[str] = frozenset()
    for part in re.split(r"\n\n|\n(?=[|#-])", content):
        if _HEADING.match(part):
            heading = frozenset(_terms(part))
        else:
            yield heading, frozenset(_terms(part))


def _terms(content: str) -> Iterator[str]:
    """Yield English stems, and Chinese characters with their pairs."""
    for word in _WORD.findall(content.lower()):
        if word.isascii():
            yield _stem(word)
        else:
            yield from word
            yield from (word[at : at + 2] for at in range(len(word) - 1))


def _stem(word: str) -> str:
    """Return a term without its ending, so that "keys" is "key".

    >>> [_stem(each) for each in ("keys", "serving", "serve", "proxies", "bus")]
    ['key', 'serv', 'serv', 'proxi', 'bus']
    """
    for ending in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= _SHORTEST_STEM:
            return stem
    return f"{word[:-1]}i" if word.endswith("y") and len(word) > _SHORTEST_STEM else word


def _wanted(term: str) -> dict[str, float]:
    """Return the terms of a query, and of other names for the same, with shares."""
    given = set(_terms(term))
    shares = {
        other: _SYNONYM
        for group in _synonyms()
        if any(name <= given for name in group)
        for name in group
        for other in name
    }
    shares.update(dict.fromkeys(given, 1.0))
    return {each: _share_of(each) * share for each, share in shares.items()}


def _share_of(term: str) -> float:
    """Return less for one Chinese character, which is part of many names."""
    return 1.0 if term.isascii() or len(term) > 1 else _CHARACTER


@cache
def _synonyms() -> tuple[tuple[frozenset[str], ...], ...]:
    """Return the groups of search.json, each name as its terms."""
    return tuple(tuple(frozenset(_terms(name)) for name in group) for group in beside(__file__))
