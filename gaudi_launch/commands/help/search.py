"""Find the commands, questions and pages that mention a term."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gaudi_launch.cli.doc_pages import DocsPage, find, pages
from gaudi_launch.cli.table import COMMANDS
from gaudi_launch.cli.translated import translated
from gaudi_launch.commands.help.questions import Question, every_question
from gaudi_launch.core.base.messages import text

# the most of each kind: the screen has 24 rows
_MOST = 6
_SHORTEST_PLURAL = 3
# lists of all options and keys: a section of the first counts for its command
_LISTS = ("commands", "json", "questions", "index")
_SECTION = re.compile(r"(?m)^#{2,4} `?([^`\n]+)`?$")


@dataclass(frozen=True)
class Found:
    """The mentions of a term, the most frequent first.

    Commands are paths without the program's name, each with its line of help.
    """

    commands: Mapping[str, str]
    questions: tuple[Question, ...]
    pages: tuple[DocsPage, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.commands or self.questions or self.pages)


def search(term: str) -> Found:
    """Return what mentions a term, without regard to capitals and a plural."""
    wanted = term.lower()
    if len(wanted) > _SHORTEST_PLURAL:
        wanted = wanted.removesuffix("s")
    _, *parts = _SECTION.split(find("commands").text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    commands = {
        name: content.lower().count(wanted) + 100 * (wanted in name)
        for name, content in sections.items()
        if name.split()[0] in COMMANDS
    }
    questions = [
        each
        for named in every_question().values()
        for each in named
        if any(wanted in text(each.id, language).lower() for language in (None, "en"))
    ]
    by_name = {page.name: page for page in pages() if page.name not in _LISTS}
    counts = {
        name: page.text.lower().count(wanted) + 100 * (wanted in page.title.lower())
        for name, page in by_name.items()
    }
    return Found(
        {name: _line(name, sections[name]) for name in _most(commands)},
        tuple(questions[:_MOST]),
        tuple(by_name[name] for name in _most(counts)),
    )


def _line(name: str, section: str) -> str:
    """Return the line of help of a command, or its section's first paragraph."""
    if name in COMMANDS:
        return translated(COMMANDS[name][1])
    # the usage is before it
    return section.strip().split("\n\n")[1]


def _most(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the names with the most mentions."""
    named = [name for name, count in counts.items() if count]
    return tuple(sorted(named, key=lambda name: -counts[name])[:_MOST])
