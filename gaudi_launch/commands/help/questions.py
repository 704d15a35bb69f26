"""Questions of users, with the command for each.

`gaudi-launch help` and docs/questions.md show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from gaudi_launch.core.base.reader import beside


@dataclass(frozen=True)
class Question:
    """A question, by the id of its text, and the arguments that answer it."""

    id: str
    arguments: str

    @property
    def command(self) -> str:
        """Return the command line to type."""
        return f"gaudi-launch {self.arguments}"


@cache
def every_question() -> Mapping[str, tuple[Question, ...]]:
    """Return the questions by their group; questions.json has them.

    The titles are those of the command groups in --help.
    """
    found = beside(__file__)
    return {
        title: tuple(Question(id, arguments) for id, arguments in rows.items())
        for title, rows in found.items()
    }
