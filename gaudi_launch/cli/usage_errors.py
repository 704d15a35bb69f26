"""Typer's usage errors as sentences in the reader's language, with nearest names.

Some releases of typer contain click and some import it, so an error is known by the name of its
class, and one that has only a text by that text (fastapi/typer: typer/_click/parser.py, core.py and
types.py; pallets/click the same).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gaudi_launch.cli.console import error_document
from gaudi_launch.cli.first_options import path_of
from gaudi_launch.cli.foreign_options import foreign_names, foreign_option, other_names
from gaudi_launch.cli.gone import gone, gone_names
from gaudi_launch.cli.nearest import corrected, nearest
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import Message, message, text

# the texts of errors without fields -> our message; each group is a value
_TEXTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Option '(?P<found>.+)' requires (an|\d+) arguments?\."), "usage.needs_value"),
    (re.compile(r"Option '(?P<found>.+)' does not take a value\."), "usage.takes_no_value"),
    (
        re.compile(r"Got unexpected extra arguments?(\(s\))? \((?P<found>.*)\)", re.DOTALL),
        "usage.extra",
    ),
    (re.compile(r"Missing command\."), "usage.missing_command"),
)
_VALUE_TEXTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"'(?P<found>.*)' is not a valid (int|integer|float)( range)?\."),
        "usage.not_number",
    ),
    (re.compile(r"(?P<found>.+) is not in the range (?P<known>.+)\."), "usage.out_of_range"),
    (re.compile(r"'(?P<found>.*)' is not one of (?P<known>.+)\."), "usage.not_one_of"),
)
# the name as Python shows a string: in one of its two quotes and with escapes
_NO_COMMAND = re.compile(r"""No such command ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


def usage_document(error: Any, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the document of a usage error, with the corrected commands."""
    shown = usage_message(error, arguments)
    near = str(shown.values.get("ours") or shown.values.get("near") or "").split(", ")
    document = error_document("common.usage", usage_sentence(error, shown), ExitCode.USAGE)
    found = str(shown.values.get("found", ""))
    commands = corrected(_without_value(arguments, found), found, near)
    return {**document, "commands": commands} if commands else document


def usage_sentence(error: Any, shown: Message) -> str:
    """Return the message of a usage error, and where its command's help is."""
    context, sentence = getattr(error, "ctx", None), shown.render()
    if context is None:
        return sentence
    command = " ".join(["gaudi-launch", *path_of(context).split()])
    return text("usage.see", sentence=sentence, command=command)


def usage_message(error: Any, arguments: Sequence[str]) -> Message:
    """Return a usage error as a message; its values name what was found, and ours."""
    context = getattr(error, "ctx", None)
    kind = type(error).__name__
    shown = str(error.format_message())
    if kind == "NoSuchOption" and context is not None:
        return _no_option(str(error.option_name), context)
    if kind in ("UsageError", "NoSuchCommand") and context is not None:
        command = _NO_COMMAND.match(shown)
        typed = [word for word in arguments if command and repr(word) == command[1]]
        if typed:
            return _no_command(typed[0], context, arguments)
    if kind == "MissingParameter" and error.param is not None:
        return _missing(error.param)
    if kind == "BadParameter":
        return _bad_value(error)
    found = _by_text(_TEXTS, shown)
    if found is None:
        return message("usage.as_it_is", what=shown)
    if (
        found.id == "usage.needs_value"
        and found.values["found"] == "-d"
        and "--detach" in _known(context)
    ):
        # docker's habit
        return message("usage.detach")
    return found


def _known(context: Any) -> list[str]:
    """Return every spelling of the options of a context's command."""
    if context is None:
        return []
    return [
        spelling
        for param in context.command.get_params(context)
        for spelling in (*param.opts, *param.secondary_opts)
        if spelling.startswith("-")
    ]


def _no_option(found: str, context: Any) -> Message:
    """Return the option's name here, a similar one, or the hint that it needs ``--``.

    ``--`` is for engine options.
    """
    whole = f"{path_of(context)} {found}"
    if whole in gone_names():
        return gone(whole).text
    known = _known(context)
    foreign = foreign_option(found, known)
    if foreign is not None:
        return foreign
    near = _near_options(found, known)
    if not getattr(context.command, "passes_options", False):
        if near:
            return message("usage.no_option_near", found=found, near=near)
        return message("usage.no_option", found=found)
    if near:
        return message("usage.no_option_engine", found=found, near=near)
    return message("usage.no_option_passed", found=found)


def _near_options(found: str, known: Sequence[str]) -> str:
    """Return the options that a misspelt long one may mean, ours for another tool's.

    Return "" for none.
    """
    if not found.startswith("--"):
        return ""
    ours = {name: name for name in known if name.startswith("--")} | foreign_names(known)
    # the dashes would make any two short names alike
    by_word = {name.removeprefix("--"): spelling for name, spelling in ours.items()}
    near = nearest(found.partition("=")[0].removeprefix("--").replace("_", "-"), by_word)
    return ", ".join(dict.fromkeys(by_word[word] for word in near))


def _no_command(found: str, context: Any, arguments: Sequence[str]) -> Message:
    known = context.command.list_commands(context)
    foreign = None
    if context.parent is None:
        foreign = _foreign_command(arguments[arguments.index(found) :])
    if foreign is not None:
        return message("usage.foreign_command", found=foreign[0], ours=foreign[1])
    near = nearest(found, known)
    if near:
        return message("usage.no_command_near", found=found, near=", ".join(near))
    if context.parent is None:
        return message("usage.no_command", found=found)
    return message("usage.no_subcommand", found=found, known=", ".join(known))


def _missing(param: Any) -> Message:
    if param.param_type_name == "argument":
        return message("usage.missing_argument", name=param.metavar or str(param.name).upper())
    return message("usage.missing_option", name=max(param.opts, key=len))


def _bad_value(error: Any) -> Message:
    name = ""
    if error.param is not None:
        spellings = (*error.param.opts, error.param.metavar or "")
        name = max(spellings, key=lambda each: (each.startswith("-"), len(each)))
    found = _by_text(_VALUE_TEXTS, str(error.message))
    if found is None:
        return message("usage.bad_value", name=name, why=error.message)
    return message(found.id, name=name, **found.values)


def _by_text(texts: tuple[tuple[re.Pattern[str], str], ...], shown: str) -> Message | None:
    for pattern, id in texts:
        match = pattern.match(shown)
        if match is not None:
            return message(id, **match.groupdict())
    return None


def _without_value(args: Sequence[str], name: str) -> list[str]:
    """Return arguments without the value of an option whose name here has its own.

    >>> _without_value(["logs", "q", "--since", "1h"], "--since")
    ['logs', 'q', '--since']
    >>> _without_value(["logs", "--since=1h", "q"], "--since")
    ['logs', '--since', 'q']
    """
    if name not in other_names("instead"):
        return list(args)
    kept: list[str] = []
    has_value = False
    for word in args:
        if not has_value or word.startswith("-"):
            kept.append(name if word.startswith(f"{name}=") else word)
        has_value = word == name
    return kept


def _foreign_command(arguments: Sequence[str]) -> tuple[str, str] | None:
    """Return another tool's command of one argument or two, and ours.

    Return None where no command does the same.
    """
    for length in (2, 1):
        name = " ".join(arguments[:length])
        ours = other_names("commands").get(name.lower())
        if ours is not None:
            return name, f"gaudi-launch {ours}"
    return None
