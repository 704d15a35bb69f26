"""The command lines that end each help. tests/cli/test_examples.py runs every one of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A command line to copy, and what it does, in English."""

    command: str
    text: str


_DEMO = Example("gaudi-launch serve demo", "Serve a small model; no card is needed")
_EXAMPLES: dict[str, tuple[Example, ...]] = {
    "": (
        _DEMO,
        Example(
            "gaudi-launch plan Qwen/Qwen3-8B --machine simulated:hls2",
            "Show what would be started on a server with eight Gaudi2 cards",
        ),
    ),
    "serve": (_DEMO,),
}


def examples_of(path: str) -> tuple[Example, ...]:
    """Return the examples of a command, by its path without the program's name."""
    return _EXAMPLES.get(path, ())
