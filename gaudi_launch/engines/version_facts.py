"""The options and variables of one engine version, as its source has them."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from gaudi_launch import paths
from gaudi_launch.engines.support import Version
from gaudi_launch.profiles import read_document

# variables that upstream vLLM reads for every hardware are in this file
_UPSTREAM = "vllm/envs.py"


@dataclass(frozen=True)
class NameFacts:
    """An option or a variable.

    ``default`` is source text, "" without one; ``places`` are its readers.
    """

    name: str
    default: str
    places: tuple[str, ...]

    @property
    def literal(self) -> object:
        """Return the default's value; `Ellipsis` where only the engine can compute it."""
        try:
            return ast.literal_eval(self.default)
        except (ValueError, SyntaxError):
            return ...


@dataclass(frozen=True)
class VersionNames:
    """Every option, spelled with hyphens, and variable of one version."""

    options: Mapping[str, NameFacts]
    variables: Mapping[str, NameFacts]


def names_of(version: Version) -> VersionNames:
    """Return the names of one version of the shipped data.

    They are those of ``profiles/engines/support/ENGINE-VERSION.json``, by scripts/engine_facts.py;
    none for an image, which has no such file.
    """
    return _names_in(f"{version.engine}-{version.version}.json")


@cache
def _names_in(file: str) -> VersionNames:
    path = paths.profiles_dir() / "engines" / "support" / file
    if not path.is_file():
        return VersionNames({}, {})
    document = json.loads(path.read_text(encoding="utf-8"))
    options = {
        plain_option(name): NameFacts(name, str(row["default"] or ""), (row["place"],))
        for name, row in document.get("options", {}).items()
    }
    variables = {
        name: NameFacts(name, str(row["default"] or ""), tuple(row["read_by"]))
        for name, row in document["environment"].items()
    }
    return VersionNames(options, variables)


def plain_option(name: str) -> str:
    """Return an option with hyphens.

    The engines read ``--max_model_len`` in the same way.
    """
    return "--" + name.removeprefix("--").replace("_", "-")


def for_gaudi(facts: NameFacts) -> bool:
    """Return True for a variable that the code for this hardware reads."""
    return any(not place.startswith(_UPSTREAM) for place in facts.places)


@dataclass(frozen=True)
class Renamed:
    """The replacement of an option or a variable that a version no longer has."""

    name: str
    instead: str
    source: str


@cache
def renames() -> Mapping[str, Renamed]:
    """Return the known replacements by the old name."""
    rows = read_document(paths.profiles_dir() / "engines" / "changes" / "renames.yaml")["renames"]
    return {
        str(row["name"]): Renamed(str(row["name"]), str(row["instead"]), str(row["source"]))
        for row in rows
    }


@dataclass(frozen=True)
class EngineProblem:
    """A known problem with its public thread.

    ``versions`` are those that the thread names; ``fixed`` is the first version without it, ""
    where the thread is open. ``when`` says for which plans it matters: ``gdn``, ``mxfp4``,
    ``eager``, ``moe``, ``several_cards``, ``long``, "" for every one. The catalogue has its
    sentence.
    """

    id: str
    thread: str
    state: str
    date: str
    versions: tuple[str, ...]
    when: tuple[str, ...]

    @property
    def url(self) -> str:
        """Return the address of the thread."""
        repository, _, number = self.thread.partition("#")
        return f"https://github.com/{repository}/issues/{number}"


@cache
def problems() -> tuple[EngineProblem, ...]:
    """Return the known problems, as their threads had them on the dates stated."""
    rows = read_document(paths.profiles_dir() / "engines" / "changes" / "problems.yaml")["problems"]
    return tuple(
        EngineProblem(
            id=str(row["id"]),
            thread=str(row["thread"]),
            state=str(row["state"]),
            date=str(row["date"]),
            versions=tuple(map(str, row["versions"])),
            when=tuple(map(str, row["when"])),
        )
        for row in rows
    )
