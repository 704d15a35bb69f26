"""Every command of the program with its context, and the texts of its help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer.main

from gaudi_launch.cli import help
from gaudi_launch.cli.first_options import path_of
from gaudi_launch.cli.help import examples
from gaudi_launch.cli.main import app

# what the layout of a help adds
FRAME = (
    "{title}:",
    "Usage",
    "Options",
    "Arguments",
    "Examples",
    "Other",
    "{text} (default: {value})",
    *help.FIRST_NOTES,
)


@dataclass(frozen=True)
class FoundCommand:
    """A command, as click runs it, by its path without the program's name."""

    path: str
    command: Any
    context: Any


def all_commands() -> Iterator[FoundCommand]:
    """Yield the program and each command below it."""
    root = typer.main.get_command(app)
    yield from _below(root, root.make_context("gaudi-launch", [], resilient_parsing=True))


def _below(command: Any, context: Any) -> Iterator[FoundCommand]:
    yield FoundCommand(path_of(context), command, context)
    if not hasattr(command, "list_commands"):
        return
    for name in command.list_commands(context):
        _, loaded, _ = command.resolve_command(context, [name])
        yield from _below(
            loaded, loaded.make_context(name, [], parent=context, resilient_parsing=True)
        )


def english_texts() -> set[str]:
    """Return every English text that some help shows."""
    found = set(FRAME)
    for each in all_commands():
        found.update(help.english_paragraphs(each.command.help))
        found.update(examples().get(each.path, {}).values())
        for param in each.command.get_params(each.context):
            if not param.hidden:
                found.add(help.english_text(param))
                found.add(getattr(param, "rich_help_panel", None) or "Options")
        if hasattr(each.command, "command_sections"):
            for title, commands in each.command.command_sections(each.context):
                found.add(title)
                found.update(next(iter(help.english_paragraphs(text)), "") for _, text in commands)
    return found - {""}
