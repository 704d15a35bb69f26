"""The help of a command: its content (`HelpPage`), and its layout by width.

Plain text without frames: it can be searched in a pipe, an example can be copied, and 40 columns
suffice.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaudi_launch.cli.colour import BOLD, NAME, is_coloured, painted
from gaudi_launch.cli.first_options import first_options, path_of
from gaudi_launch.cli.short_page import first_sentence
from gaudi_launch.cli.table import FIRST_COMMANDS
from gaudi_launch.cli.translated import translated
from gaudi_launch.cli.wrapping import cells, padded, terminal_width, wrapped
from gaudi_launch.core.base.reader import read_json

# in a narrower terminal the text of an option is below its name
_NARROW = 60
_NAME_CELLS = 30
# below the commands of the first screen
FIRST_NOTES = (
    "From a start script: gaudi-launch migrate 'COMMAND'",
    "All commands and options: gaudi-launch --help-all; pages: gaudi-launch help",
)


@dataclass(frozen=True)
class HelpEntry:
    """An option, an argument or a command, with its text."""

    name: str
    text: str


@dataclass(frozen=True)
class HelpSection:
    """Entries below a title."""

    title: str
    entries: tuple[HelpEntry, ...]


@dataclass(frozen=True)
class HelpPage:
    """All that a help shows, in the reader's language."""

    usage: str
    paragraphs: tuple[str, ...]
    sections: tuple[HelpSection, ...]
    examples: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


# --- layout ---------------------------------------------------------------------------------------


def shown(command: Any, context: Any, *, everything: bool) -> str:
    """Return the help of a command for this process's stdout."""
    page = page_of(command, context, everything=everything)
    return layout(page, terminal_width(), coloured=is_coloured(sys.stdout))


def shown_in(root: Any, words: Sequence[str]) -> str:
    """Return the help of the command below ``root`` that the arguments name.

    Raises typer's usage error.
    """
    context = root
    for word in words:
        if not hasattr(context.command, "resolve_command"):
            context.fail(f"Got unexpected extra argument ({word})")
        _, command, _ = context.command.resolve_command(context, [word])
        context = command.make_context(word, [], parent=context, resilient_parsing=True)
    return str(context.get_help())


def titled(title: str) -> str:
    """Return a title with the colon of the language in force."""
    return translated("{title}:").format(title=title)


def layout(page: HelpPage, width: int, *, coloured: bool) -> str:
    """Return a page as text of at most ``width`` columns.

    Only names and examples may be longer.
    """
    first, *rest = wrapped(f"{titled(translated('Usage'))} {page.usage}", width)
    lines = [painted(first, BOLD, coloured=coloured), *(f"  {line}" for line in rest)]
    for paragraph in page.paragraphs:
        lines += ["", *wrapped(paragraph, width)]
    for section in page.sections:
        lines += ["", painted(titled(section.title), BOLD, coloured=coloured)]
        lines += entry_lines(section.entries, width, coloured)
    if page.examples:
        lines += ["", painted(titled(translated("Examples")), BOLD, coloured=coloured)]
        lines += _example_lines(page.examples, width, coloured)
    for note in page.notes:
        lines += ["", *wrapped(note, width)]
    return "\n".join(lines)


def entry_lines(entries: Sequence[HelpEntry], width: int, coloured: bool) -> list[str]:
    """Return the lines of entries: names and texts side by side where both fit."""
    column = _name_column(entries, width)
    lines: list[str] = []
    for entry in entries:
        name = painted(entry.name, NAME, coloured=coloured)
        if column is None:
            lines.append(f"  {name}")
            lines += [f"      {line}" for line in wrapped(entry.text, width - 6)]
            continue
        text = wrapped(entry.text, width - column - 4)
        if cells(entry.name) > column or not text:
            lines.append(f"  {name}")
        else:
            lines.append(f"  {name}{padded('', column - cells(entry.name) + 2)}{text.pop(0)}")
        lines += [" " * (column + 4) + line for line in text]
    return lines


def _name_column(entries: Sequence[HelpEntry], width: int) -> int | None:
    """Return the cells for names; None where texts are below them."""
    if width < _NARROW:
        return None
    return max(
        (cells(entry.name) for entry in entries if cells(entry.name) <= _NAME_CELLS), default=0
    )


def _example_lines(shown: Mapping[str, str], width: int, coloured: bool) -> list[str]:
    lines: list[str] = []
    for command, meaning in shown.items():
        lines += [f"  # {line}" for line in wrapped(meaning, width - 4)]
        # on one line however long it is, so that it can be copied
        lines.append(f"  {painted(command, NAME, coloured=coloured)}")
    return lines


# --- from a command -------------------------------------------------------------------------------


def page_of(command: Any, context: Any, *, everything: bool) -> HelpPage:
    """Return the page of one command.

    ``everything``: all options by panel, where the short help has only some.
    """
    path = path_of(context)
    if not path and not everything:
        return _first_screen(command, context)
    first = () if everything else first_options(path)
    params = [param for param in command.get_params(context) if not param.hidden]
    arguments = tuple(entry_of(param) for param in params if is_argument(param))
    options = [param for param in params if not is_argument(param)]
    sections = _command_sections(command, context)
    if arguments:
        sections.append(HelpSection(translated("Arguments"), arguments))
    if first:
        sections.append(
            HelpSection(
                translated("Options"), tuple(entry_of(param) for param in _chosen(options, first))
            )
        )
    else:
        sections += _panels(options)
    return HelpPage(
        usage=_usage(command, context, params),
        paragraphs=paragraphs_of(command.help),
        sections=tuple(sections),
        examples={line: translated(what) for line, what in examples().get(path, {}).items()},
    )


def _first_screen(program: Any, context: Any) -> HelpPage:
    """Return the commands that every user needs, for a screen of 24 rows."""
    commands = {
        name: text for _, named in program.command_sections(context) for name, text in named
    }
    entries = tuple(HelpEntry(name, translated(commands[name])) for name in FIRST_COMMANDS)
    return HelpPage(
        usage=_usage(program, context, ()),
        paragraphs=paragraphs_of(program.help),
        sections=(HelpSection(translated("Commands"), entries),),
        notes=tuple(translated(note) for note in FIRST_NOTES),
    )


def is_argument(param: Any) -> bool:
    """Report whether a parameter is positional."""
    return bool(param.param_type_name == "argument")


def english_paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a docstring, each as one line."""
    found = [" ".join(part.split()) for part in (text or "").split("\f")[0].split("\n\n")]
    return [part for part in found if part]


def paragraphs_of(text: str | None) -> tuple[str, ...]:
    """Return the paragraphs of a docstring in the reader's language."""
    return tuple(translated(part) for part in english_paragraphs(text))


def _command_sections(command: Any, context: Any) -> list[HelpSection]:
    """Return the commands below a group by title; none for a command.

    Each has the first sentence of its help.
    """
    if not hasattr(command, "command_sections"):
        return []
    sections = []
    for title, commands in command.command_sections(context):
        entries = [
            HelpEntry(name, str(first_sentence(next(iter(paragraphs_of(help)), ""))))
            for name, help in commands
        ]
        sections.append(HelpSection(translated(title), tuple(entries)))
    return sections


def examples() -> Mapping[str, Mapping[str, str]]:
    """Return the example lines of each command, with their meaning."""
    found: Mapping[str, Mapping[str, str]] = read_json(Path(__file__).with_name("examples.json"))
    return found


def _usage(command: Any, context: Any, params: Sequence[Any]) -> str:
    pieces = [*f"gaudi-launch {path_of(context)}".split(), "[OPTIONS]"]
    for param in params:
        if is_argument(param):
            name = _metavar(param)
            pieces.append(name if param.required or name.startswith("[") else f"[{name}]")
    if hasattr(command, "list_commands"):
        pieces.append("COMMAND [ARGS]...")
    return " ".join(pieces)


def _chosen(options: Sequence[Any], first: Sequence[str]) -> list[Any]:
    """Return the options in the order of ``first``, then those for help."""
    by_spelling = {spelling: param for param in options for spelling in param.opts}
    return [
        by_spelling[spelling]
        for spelling in (*first, "--help-all", "--help")
        if spelling in by_spelling
    ]


def _panels(options: Sequence[Any]) -> list[HelpSection]:
    """Return the options by panel, those without one first, --help last in them."""
    panels: dict[str, list[HelpEntry]] = {"Options": []}
    for param in options:
        title = getattr(param, "rich_help_panel", None) or "Options"
        panels.setdefault(title, []).append(entry_of(param))
    return [
        HelpSection(translated(title), tuple(entries))
        for title, entries in panels.items()
        if entries
    ]


def entry_of(param: Any) -> HelpEntry:
    """Return the line of an option or an argument."""
    if is_argument(param):
        return HelpEntry(_metavar(param), _with_default(param))
    return _option(param)


def _option(param: Any) -> HelpEntry:
    short = [spelling for spelling in param.opts if not spelling.startswith("--")]
    long = [spelling for spelling in param.opts if spelling.startswith("--")]
    spelled = ", ".join([*short, *long]) if short else "    " + ", ".join(long)
    if param.secondary_opts:
        spelled += f" / {', '.join(param.secondary_opts)}"
    if not param.is_flag and not param.count:
        spelled += f" {_metavar(param)}"
    return HelpEntry(spelled, _with_default(param))


def _metavar(param: Any) -> str:
    if param.metavar:
        return str(param.metavar)
    if is_argument(param):
        return str(param.name).upper()
    choices = getattr(param.type, "choices", None)
    if choices:
        return "|".join(str(choice) for choice in choices)
    kind = str(param.type.name).lower()
    if kind.startswith(("int", "float")):
        return "N"
    if kind in ("path", "file", "filename"):
        return "PATH"
    return "TEXT"


def _with_default(param: Any) -> str:
    text = translated(english_text(param))
    default = param.default
    if (
        not getattr(param, "show_default", False)
        or not isinstance(default, int | float | str)
        or default == ""
    ):
        return text
    if isinstance(default, bool):
        return text
    value = f"{default:g}" if isinstance(default, float) else str(default)
    return translated("{text} (default: {value})").format(text=text, value=value)


def english_text(param: Any) -> str:
    """Return the help of a parameter as the code has it, in one line."""
    if "--help" in param.opts:
        return "Show this help."
    return " ".join((param.help or "").split())
