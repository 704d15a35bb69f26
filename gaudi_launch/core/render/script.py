"""A plan as a bash script that runs without gaudi-launch."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from gaudi_launch.core.base.messages import text
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.planning.exported import SECRETS
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.render.plan_container import refuse_secrets, required, secrets_of
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.text import check_words, comments, heading

START = ["#!/usr/bin/env bash"]
# shellcheck warns about an argument in single quotes with \, curly quotes, $ or ~
_ASKS = "SC1003,SC1112,SC2016,SC2088"
STRICT = ["set -euo pipefail", ""]


def render(plan: Plan, environment: Mapping[str, str]) -> Rendered:
    """Return the script.

    ``environment`` are the user's exported variables (secrets stay there and are required by name).
    """
    check_words(plan)
    refuse_secrets(plan.args)
    lines = [*START, *as_they_stand(plan_words(plan)), *comments(heading(plan)), *STRICT]
    lines += exports(plan.command.env)
    lines += [f"unset {name}" for name in plan.command.unset]
    lines += asked(required(secrets_of(plan, environment)))
    folders = [shlex.quote(folder) for folder in folders_of(plan.command.env)]
    if folders:
        lines += [f"mkdir -p -- {' '.join(folders)}"]
    lines += written(plan.command.files)
    if plan.command.working_dir:
        lines += [f"cd -- {shlex.quote(plan.command.working_dir)}"]
    lines += ["", *array("engine", plan.command.argv), *_bound(plan)]
    return Rendered({"serve.sh": "\n".join(lines) + "\n"}, frozenset({"serve.sh"}))


def plan_words(plan: Plan) -> list[str]:
    """Return every argument of the plan that a script quotes."""
    command = plan.command
    written = (*command.files, *command.files.values(), command.working_dir or "")
    return [*command.argv, *command.env.values(), *written]


def as_they_stand(words: Iterable[str]) -> list[str]:
    """Return the line that disables shellcheck's warning about these arguments."""
    if set("\\\u2018\u2019$`~").isdisjoint("".join(words)):
        return []
    return [f"# shellcheck disable={_ASKS}"]


def exports(env: Mapping[str, str]) -> list[str]:
    """Return ``export`` lines, sorted by name."""
    return [
        f"export {name}={_quoted(value)}"
        for name, value in sorted(env.items())
        if name not in SECRETS
    ]


def asked(secrets: Sequence[str]) -> list[str]:
    """Return lines that end the script where one of these is not exported."""
    return [f': "${{{name}:?}}"' for name in secrets]


def folders_of(env: Mapping[str, str]) -> list[str]:
    """Return folders that must exist before the engine starts: the recipe cache's."""
    cache = env.get("PT_HPU_RECIPE_CACHE_CONFIG", "").split(",")[0]
    if not cache:
        return []
    return [cache]


def written(files: Mapping[str, str]) -> list[str]:
    """Return lines that write these texts to the paths of the plan's variables."""
    lines: list[str] = []
    for path, content in files.items():
        folder, place = shlex.quote(str(PurePosixPath(path).parent)), shlex.quote(path)
        lines += [f"mkdir -p -- {folder}", f"printf %s {shlex.quote(content)} > {place}"]
    return lines


def array(name: str, words: Sequence[str]) -> list[str]:
    """Return a bash array of these arguments, an option and its value on one line."""
    lines: list[str] = []
    option = False
    for word in words:
        if option and not word.startswith("-"):
            lines[-1] += f" {_element(word)}"
            option = False
        else:
            lines.append(f"    {_element(word)}")
            option = word.startswith("-") and "=" not in word
    return [f"{name}=(", *lines, ")"]


def _element(word: str) -> str:
    """Return a quoted element of an array.

    One with a comma is always quoted, lest it looks like a separator (shellcheck SC2054).
    """
    if "," in word and shlex.quote(word) == word:
        return f"'{word}'"
    return _quoted(word)


def _quoted(word: str) -> str:
    """Return a quoted argument.

    One that begins with = is always quoted, as it looks like an index or a comparison (shellcheck
    SC2191, SC1097).
    """
    words = shlex.quote(word)
    if words == word and word.startswith(("=", "+=")):
        return f"'{word}'"
    return words


def _bound(plan: Plan) -> list[str]:
    """Return the last lines: the engine, bound to its CPUs if numactl can do so."""
    cpus = plan.command.cpus
    # a container has an option for CPUs; its client needs none
    if not cpus or plan.container is not None:
        return ['exec "${engine[@]}" "$@"']
    words = ["numactl", "-C", format_cpus(cpus)]
    if plan.command.memory_node is not None:
        words += ["-p", str(plan.command.memory_node)]
    bind = shlex.join(words)
    return [
        f"if {bind} true 2> /dev/null; then",
        f'    exec {bind} "${{engine[@]}}" "$@"',
        "fi",
        f"echo {shlex.quote(text('render.unbound'))} >&2",
        'exec "${engine[@]}" "$@"',
    ]
