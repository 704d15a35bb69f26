"""A plan as a bash script that runs without us."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from gaudi_launch.host.cpus import format_cpus
from gaudi_launch.messages import text
from gaudi_launch.planning.exported import SECRETS
from gaudi_launch.planning.plan import Plan
from gaudi_launch.render.container import refuse_secrets, required, secrets_of
from gaudi_launch.render.records import Rendered
from gaudi_launch.render.text import check_words, comments, heading

START = ["#!/usr/bin/env bash"]
STRICT = ["set -euo pipefail", ""]


def render(plan: Plan, environment: Mapping[str, str]) -> Rendered:
    """The script; ``environment`` is what the user exported (secrets stay there and are asked for by name)."""
    check_words(plan)
    refuse_secrets(plan.command.argv)
    lines = [*START, *comments(heading(plan)), *STRICT]
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


def exports(env: Mapping[str, str]) -> list[str]:
    """``export`` lines, sorted by name."""
    return [f"export {name}={shlex.quote(value)}" for name, value in sorted(env.items()) if name not in SECRETS]


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
    """A quoted word; one with a comma in quotes, lest it looks like a separator (shellcheck SC2054)."""
    words = shlex.quote(word)
    return f"'{word}'" if words == word and "," in word else words


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
