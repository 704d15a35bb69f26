"""The page of questions and commands: on a terminal, as JSON, for the docs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from gaudi_launch.cli.colour import BOLD, NAME, is_coloured, painted
from gaudi_launch.cli.help import terminal_width, titled
from gaudi_launch.cli.questions import QUESTIONS
from gaudi_launch.cli.translated import translated
from gaudi_launch.cli.wrapping import cells, padded, wrapped
from gaudi_launch.messages import text

# below this width, a command is under its question
_TWO_COLUMNS = 76


def show_questions() -> None:
    """Print the questions for the terminal's width."""
    print("\n".join(question_lines(terminal_width(), coloured=is_coloured(sys.stdout))))


def questions_json() -> dict[str, Any]:
    """Return the questions with their commands by group."""
    rows = [
        {"group": translated(title), "id": each.id, "question": text(each.id), "command": each.command}
        for title, questions in QUESTIONS.items()
        for each in questions
    ]
    return {"schema": 1, "questions": rows}


def question_lines(width: int, *, coloured: bool) -> Iterator[str]:
    """Yield the page: questions on the left, commands to copy on the right or below."""
    yield from wrapped(text("questions.usage"), width)
    column = max(cells(text(each.id)) for questions in QUESTIONS.values() for each in questions)
    for title, questions in QUESTIONS.items():
        yield ""
        yield painted(titled(translated(title)), BOLD, coloured=coloured)
        for each in questions:
            command = painted(each.command, NAME, coloured=coloured)
            if width >= _TWO_COLUMNS:
                yield f"  {padded(text(each.id), column)}  {command}"
            else:
                yield from (f"  {line}" for line in wrapped(text(each.id), width - 2))
                yield f"      {command}"


def questions_markdown() -> str:
    """Return the page for docs/, in the language in force."""
    lines = [f"# {text('questions.title')}", "", text("questions.usage")]
    for title, questions in QUESTIONS.items():
        lines += ["", f"## {translated(title)}", ""]
        lines += [f"| {text('questions.column_question')} | {text('questions.column_command')} |", "|---|---|"]
        lines += [f"| {text(each.id)} | `{each.command}` |" for each in questions]
    return "\n".join(lines) + "\n"
