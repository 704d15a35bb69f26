"""Common parts of rendered texts: valid arguments, comments, a plan's files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.planning.exported import engine_variables
from gaudi_launch.core.planning.plan import Plan

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# of the control characters systemd accepts these two in a variable (env_value_is_valid of its
# env-util.c)
_SYSTEMD_TAKES = "\t\n"


def check_words(plan: Plan, *, for_systemd: bool = False) -> None:
    """Check that the plan's arguments can be written to a text file and read back.

    Raises LaunchError (USAGE).
    """
    for word in (*plan.command.argv, *plan.command.env.values()):
        broken = "\0" in word or any(0xD800 <= ord(mark) <= 0xDFFF for mark in word)
        control = for_systemd and any(
            mark not in _SYSTEMD_TAKES and (ord(mark) < 32 or ord(mark) == 127) for mark in word
        )
        if broken or control:
            raise LaunchError("render.not_text", ExitCode.USAGE, word=ascii(word))
    for name in plan.command.env:
        if not _NAME.fullmatch(name):
            raise LaunchError("render.not_text", ExitCode.USAGE, word=ascii(name))


def heading(plan: Plan) -> list[str]:
    """Return comment lines, without comment marks: what the file starts, its maker."""
    words = {
        "engine": plan.engine.label,
        "model": str(plan.model.get("path", "-")),
        "cards": ",".join(map(str, plan.placement.modules)),
        "url": plan.url,
    }
    id = "render.heading"
    if not words["cards"]:
        id = "render.heading_no_cards"
    return [on_one_line(text(id, **words)), text("render.made")]


def on_one_line(words: str) -> str:
    """Return text for a comment: nothing in it may end the line."""
    return "".join(mark if mark.isprintable() else "?" for mark in words)


def comments(lines: Iterable[str]) -> list[str]:
    return [f"# {on_one_line(line)}" for line in lines]


def with_exported(plan: Plan, environment: Mapping[str, str]) -> Plan:
    """Return the plan with the variables that the user exported for the engine.

    An engine that this program starts inherits them.
    """
    if plan.container is not None:
        return plan
    env = {**engine_variables(environment), **plan.command.env}
    return replace(plan, command=replace(plan.command, env=env))


def with_files(plan: Plan, folder: Path) -> tuple[Plan, Mapping[str, str]]:
    """Return the plan with its files in this folder, and their texts by name.

    Where the plan names one of them, in variables or options, it names the one in the folder.
    """
    if not plan.command.files:
        return plan, {}
    moved = {path: str(folder.absolute() / PurePosixPath(path).name) for path in plan.command.files}
    command = replace(
        plan.command,
        argv=tuple(moved.get(word, word) for word in plan.command.argv),
        env={name: moved.get(value, value) for name, value in plan.command.env.items()},
        files={moved[path]: content for path, content in plan.command.files.items()},
    )
    return replace(plan, command=command), {
        Path(path).name: content for path, content in command.files.items()
    }
