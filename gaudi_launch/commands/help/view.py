"""The page of questions and commands: on a terminal, as JSON, for the docs."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from gaudi_launch.cli.colour import BOLD, NAME, is_coloured, painted
from gaudi_launch.cli.help import HelpEntry, entry_lines
from gaudi_launch.cli.table import COMMANDS, FIRST_COMMANDS
from gaudi_launch.cli.translated import translated
from gaudi_launch.cli.wrapping import cells, padded, terminal_width, wrapped
from gaudi_launch.commands.help.page_view import list_json
from gaudi_launch.commands.help.questions import Question, every_question
from gaudi_launch.commands.help.search import Found
from gaudi_launch.core.base.messages import text

# before a question, and between it and its command
_BLANKS = 4


def show_questions() -> None:
    """Print a question for each command of the first screen."""
    every = [each for questions in every_question().values() for each in questions]
    first: dict[str, Question] = {}
    for each in every:
        first.setdefault(each.arguments.split()[0], each)
    shown = [first[name] for name in FIRST_COMMANDS]
    print("\n".join(question_lines(shown, terminal_width(), coloured=is_coloured(sys.stdout))))
    print("\n" + text("questions.all", n=len(every)))


def questions_json(only: Collection[Question] | None = None) -> dict[str, Any]:
    """Return the questions with their commands by group; ``only`` these where given."""
    rows = [
        {
            "group": translated(title),
            "id": each.id,
            "question": text(each.id),
            "command": each.command,
        }
        for title, questions in every_question().items()
        for each in questions
        if only is None or each in only
    ]
    return {"schema": 1, "questions": rows}


def found_json(found: Found) -> dict[str, Any]:
    """Return the commands, questions and pages that mention a term."""
    commands = [f"gaudi-launch help {name}" for name in found.commands]
    pages = list_json(found.pages)["pages"]
    return {**questions_json(found.questions), "commands": commands, "pages": pages}


def show_found(found: Found) -> None:
    """Print the questions, pages and commands about a term."""
    # a question names the command that answers it
    parts = (
        (
            "questions.found_questions",
            [HelpEntry(each.arguments, text(each.id)) for each in found.questions],
        ),
        (
            "questions.found_pages",
            [
                # a page that has the name of a command is named as a file
                HelpEntry(f"help {page.name}{'.md' * (page.name in COMMANDS)}", page.title)
                for page in found.pages
            ],
        ),
        (
            "questions.found_commands",
            [HelpEntry(f"help {name}", line) for name, line in found.commands.items()],
        ),
    )
    coloured = is_coloured(sys.stdout)
    print(text("questions.prefix"))
    for title, entries in parts:
        if entries:
            print("\n" + painted(text(title), BOLD, coloured=coloured))
            print("\n".join(entry_lines(entries, terminal_width(), coloured)))


def question_lines(shown: Sequence[Question], width: int, *, coloured: bool) -> Iterator[str]:
    """Yield the page: questions on the left, commands on the right.

    Where that is too wide, the program's name is left out, and then each command is below its
    question.
    """
    column = max(cells(text(each.id)) for each in shown)
    room = width - column - _BLANKS
    without_name = max(len(each.command) for each in shown) > room
    stacked = max(len(each.arguments) for each in shown) > room
    yield from wrapped(text("questions.usage"), width)
    if without_name and not stacked:
        yield from wrapped(text("questions.prefix"), width)
    yield ""
    for each in shown:
        if stacked:
            yield from (f"  {line}" for line in wrapped(text(each.id), width - 2))
            yield f"      {painted(each.command, NAME, coloured=coloured)}"
            continue
        command = painted(each.arguments if without_name else each.command, NAME, coloured=coloured)
        yield f"  {padded(text(each.id), column)}  {command}"


def questions_markdown() -> str:
    """Return the page for docs/, in the language in force."""
    lines = [f"# {text('questions.title')}", "", text("questions.usage")]
    for title, questions in every_question().items():
        lines += ["", f"## {translated(title)}", ""]
        lines += [
            f"| {text('questions.column_question')} | {text('questions.column_command')} |",
            "|---|---|",
        ]
        lines += [f"| {text(each.id)} | `{each.command}` |" for each in questions]
    return "\n".join(lines) + "\n"
