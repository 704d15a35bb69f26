"""The command lines that end each help. tests/cli/test_examples.py runs every one of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A command line to copy, and what it does, in English."""

    command: str
    text: str


_EXAMPLES: dict[str, tuple[Example, ...]] = {
    "serve": (Example("gaudi-launch serve demo", "A small model that needs no card"),),
}


def examples_of(path: str) -> tuple[Example, ...]:
    """Return the examples of a command, by its path without the program's name."""
    return _EXAMPLES.get(path, ())
