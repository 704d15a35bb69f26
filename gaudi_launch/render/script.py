"""A plan as a bash script that runs without us."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from gaudi_launch.host.cpus import format_cpus
from gaudi_launch.messages import text
from gaudi_launch.planning.exported import SECRETS
from gaudi_launch.planning.plan import Plan
from gaudi_launch.render.plan_container import refuse_secrets, required, secrets_of
from gaudi_launch.render.rendered import Rendered
from gaudi_launch.render.text import check_words, comments, heading

START = ["#!/usr/bin/env bash"]
# what shellcheck asks about a word in single quotes: whether \, curly quotes, $ and ~ are meant as they stand
_ASKS = "SC1003,SC1112,SC2016,SC2088"
STRICT = ["set -euo pipefail", ""]


def render(plan: Plan, environment: Mapping[str, str]) -> Rendered:
    """The script; ``environment`` is what the user exported (secrets stay there and are asked for by name)."""
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
    """Every word of the plan that a script quotes."""
    command = plan.command
    written = (*command.files, *command.files.values(), command.working_dir or "")
    return [*command.argv, *command.env.values(), *written]


def as_they_stand(words: Iterable[str]) -> list[str]:
    """The line that tells shellcheck so, where it would ask about one of these words."""
    asks = any(mark in word for word in words for mark in "\\\u2018\u2019$`~")
    return [f"# shellcheck disable={_ASKS}"] if asks else []


def exports(env: Mapping[str, str]) -> list[str]:
    """``export`` lines, sorted by name."""
    return [f"export {name}={_quoted(value)}" for name, value in sorted(env.items()) if name not in SECRETS]


def asked(secrets: Sequence[str]) -> list[str]:
    """Lines that end the script where one of these is not exported."""
    return [f': "${{{name}:?}}"' for name in secrets]


def folders_of(env: Mapping[str, str]) -> list[str]:
    """Folders that must be there before the engine starts: the recipe cache's."""
    cache = env.get("PT_HPU_RECIPE_CACHE_CONFIG", "").split(",")[0]
    return [cache] if cache else []


def written(files: Mapping[str, str]) -> list[str]:
    """Lines that write these texts to these paths, where the plan's variables look for them."""
    lines: list[str] = []
    for path, content in files.items():
        folder, place = shlex.quote(str(PurePosixPath(path).parent)), shlex.quote(path)
        lines += [f"mkdir -p -- {folder}", f"printf %s {shlex.quote(content)} > {place}"]
    return lines


def array(name: str, words: Sequence[str]) -> list[str]:
    """A bash array of these words, an option and its value on one line."""
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
    """A quoted word of an array; one with a comma always in quotes, lest it looks like a separator (shellcheck
    SC2054)."""
    return f"'{word}'" if "," in word and shlex.quote(word) == word else _quoted(word)


def _quoted(word: str) -> str:
    """A quoted word; one with a = in front always, as it looks like an index or a comparison (shellcheck SC2191,
    SC1097)."""
    words = shlex.quote(word)
    return f"'{word}'" if words == word and word.startswith(("=", "+=")) else words


def _bound(plan: Plan) -> list[str]:
    """The last lines: the engine, bound to its CPUs where numactl is there and can."""
    cpus = plan.command.cpus
    # a container has its own word for CPUs; its client needs none
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
