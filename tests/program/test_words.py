"""Keep dropped wording out of messages, help, documents, docstrings and comments.

The habits are those of tests/support/prose.py. Code, options, names and quotations are exempt.
tests/program/test_words_zh.py has the Chinese glossary.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.cli.translated import translations
from gaudi_launch.core.base.messages import catalogue
from tests.support.help_texts import english_texts
from tests.support.places import TOP
from tests.support.prose import (
    HABITS,
    OPENING,
    Habit,
    comments,
    docstrings,
    headings,
    paragraphs,
    plain,
    sentences,
    written_by_hand,
)

ROOT = TOP
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
DOCUMENTS += sorted((ROOT / "docs").glob("*.md"))
FOLDERS = [*sorted((ROOT / "gaudi_launch").iterdir()), ROOT / "scripts", ROOT / "tests" / "support"]
SOURCES = [
    path
    for path in FOLDERS
    if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")
]
# (place, match): the reason why it may stay
EXCEPTIONS = {
    ("message measure.note_ruler", "word"): "a word of a text, which the client counts",
    ("message ray.replica_order", "hold"): "a condition that must hold",
    ("message diagnose.kv_too_small", "hold"): "the capacity of a cache",
}
# the texts that a check sends to a model, and the nouns of prompts
PROMPTS = (
    "gaudi_launch/extensions/bench/check/checks.py",
    "gaudi_launch/extensions/bench/check/quality.py",
    "gaudi_launch/extensions/bench/server.py",
)


def found_in(texts: Iterator[tuple[str, str]]) -> list[str]:
    """Return each habit in these (place, text), except for those that are allowed."""
    found = []
    for place, text in texts:
        prose = plain(text)
        for habit in HABITS:
            match = habit.found(prose).strip()
            if match and (place, match) not in EXCEPTIONS:
                found.append(f"{place}: '{match}' (use: {habit.instead})")
    return found


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def files_of(source: Path) -> list[Path]:
    return [source] if source.suffix == ".py" else sorted(source.rglob("*.py"))


@pytest.mark.parametrize("habit", [*HABITS, OPENING], ids=lambda habit: habit.caught)
def test_a_habit_catches_its_example_and_nothing_near_it(habit: Habit) -> None:
    assert habit.found(plain(habit.caught)) != ""
    assert habit.found(plain(habit.passes)) == ""


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("give --whole and -w", "give OPTION and OPTION"),
        ("see `told` and ``asked``", "see CODE and CODE"),
        ("the key told_by in whole/words.py", "the key NAME in NAME"),
        ('docker prints "nobody"', "docker prints QUOTE"),
        ("run 'gaudi-launch words' again", "run QUOTE again"),
        ("the engine's words", "the engine's words"),
        ("{words} of {count}", "X of X"),
        ("text\n\n>>> told()\n1\n\nmore", "text more"),
        ("```bash\ntold\n```\nafter", "after"),
    ],
)
def test_code_and_quotations_are_exempt(text: str, rest: str) -> None:
    assert plain(text) == rest


def test_messages_use_plain_words() -> None:
    assert (
        found_in((f"message {id}", sentence) for id, sentence in sorted(catalogue("en").items()))
        == []
    )


def test_help_uses_plain_words() -> None:
    assert found_in((f"help '{text}'", text) for text in sorted(english_texts())) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_documents_use_plain_words(path: Path) -> None:
    text = written_by_hand(path)
    assert found_in((f"{name_of(path)}: {part[:50]}", part) for part in paragraphs(text)) == []
    assert [heading for heading in headings(text) if OPENING.found(plain(heading))] == []


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_docstrings_and_comments_use_plain_words(source: Path) -> None:
    passages = [each for path in files_of(source) for each in (*docstrings(path), *comments(path))]
    assert found_in((f"{name_of(each.path)}:{each.line}", each.text) for each in passages) == []


@pytest.mark.parametrize("source", SOURCES[:-1], ids=name_of)
def test_texts_in_the_code_use_plain_words(source: Path) -> None:
    passages = [
        each
        for path in files_of(source)
        if name_of(path) not in PROMPTS
        for each in sentences(path)
    ]
    assert found_in((f"{name_of(each.path)}:{each.line}", each.text) for each in passages) == []


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_docstrings_open_with_a_noun_phrase_or_an_imperative(source: Path) -> None:
    passages = [each for path in files_of(source) for each in docstrings(path)]
    assert [
        f"{name_of(each.path)}:{each.line}" for each in passages if OPENING.found(plain(each.text))
    ] == []


def is_help(node: ast.AST) -> bool:
    """Return True for a command's docstring, which is its help."""
    if not isinstance(node, ast.FunctionDef):
        return False
    return any(ast.unparse(each).startswith("app.") for each in node.decorator_list)


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_the_first_line_of_a_docstring_is_short_and_imperative(source: Path) -> None:
    wrong = []
    for path in files_of(source):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(
                node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            ):
                continue
            first = (ast.get_docstring(node) or "").partition("\n\n")[0]
            noun = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and first.startswith(
                ("The ", "A ", "An ")
            )
            if (len(first) >= 80 or noun) and not is_help(node):
                wrong.append(f"{name_of(path)}: {first}")
    assert wrong == []


def test_every_exception_is_needed() -> None:
    sentences = catalogue("en")
    unneeded = []
    for place, match in EXCEPTIONS:
        text = plain(sentences.get(place.removeprefix("message "), ""))
        if match not in [habit.found(text) for habit in HABITS]:
            unneeded.append(place)
    assert unneeded == []


def test_every_help_text_has_a_chinese_one() -> None:
    # cli/help_zh.json: the English text of the code -> Chinese. A reworded text needs a new
    # entry.
    known, shown = translations("zh"), english_texts()
    assert sorted(shown - known.keys()) == []
    assert sorted(known.keys() - shown) == []
