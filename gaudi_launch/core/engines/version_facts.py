"""The options and variables of one engine version, as its source has them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from gaudi_launch.core.base.yaml_reader import shipped
from gaudi_launch.core.engines.engine_version import Version, facts_in

# variables that upstream vLLM reads for every hardware are in this file
_UPSTREAM = "vllm/envs.py"


@dataclass(frozen=True)
class NameFacts:
    """An option or a variable.

    ``default`` is source text, "" without one; ``places`` are the readers of a variable.
    ``unused``: it is defined, and no code reads what it defines. ``also`` are other spellings of an
    option, ``values`` what the parser takes, none where it takes any. ``form``: the pattern of all
    values that it converts, and one of them, by scripts/option_forms.py; none for an option that
    can be without a value. ``bounds``: the range of a number, by scripts/option_bounds.py.
    """

    name: str
    default: str
    places: tuple[str, ...] = ()
    unused: bool = False
    also: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    form: tuple[str, ...] = ()
    bounds: Mapping[str, float] = field(default_factory=dict)

    @property
    def literal(self) -> object:
        """Return the default's value; `Ellipsis` where only the engine can compute it."""
        try:
            return ast.literal_eval(self.default)
        except (ValueError, SyntaxError):
            return ...


@dataclass(frozen=True)
class VersionNames:
    """Every option, spelled with hyphens, and variable of one version.

    ``parsers`` are the registered names of ``reasoning`` and ``tool`` parsers; empty where the
    version's parser was not executed.
    """

    options: Mapping[str, NameFacts]
    variables: Mapping[str, NameFacts]
    parsers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def option(self, spelling: str) -> NameFacts | None:
        """Return the option of this spelling; None where the version has none."""
        plain = plain_option(spelling) if spelling.startswith("--") else spelling
        found = self.options.get(plain)
        if found is not None:
            return found
        return next((each for each in self.options.values() if plain in each.also), None)


def names_of(version: Version) -> VersionNames:
    """Return the names of one version of the shipped data.

    They are those of ``profiles/engines/support/ENGINE-VERSION.json``, by scripts/engine_facts.py;
    none for an image, which has no such file.
    """
    return _names_in(version.document)


@cache
def _names_in(path: Path) -> VersionNames:
    if not path.is_file():
        return VersionNames({}, {})
    document = facts_in(path)
    options = {
        plain_option(name): NameFacts(
            name,
            str(row["default"] or ""),
            also=tuple(row.get("also", ())),
            values=tuple(row.get("values", ())),
            form=tuple(row.get("form", ())),
            bounds=row.get("bounds", {}),
        )
        for name, row in document.get("options", {}).items()
    }
    variables = {
        name: NameFacts(
            name, str(row["default"] or ""), tuple(row["read_by"]), bool(row.get("unused"))
        )
        for name, row in document["environment"].items()
    }
    parsers = {kind: tuple(names) for kind, names in document.get("parsers", {}).items()}
    return VersionNames(options, variables, parsers)


def reads_variable(version: Version, name: str) -> bool:
    """Return True if the code of this version reads a variable."""
    found = names_of(version).variables.get(name)
    return found is not None and not found.unused


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
    rows = shipped("engines", "changes", "renames.yaml")["renames"]
    return {
        str(row["name"]): Renamed(str(row["name"]), str(row["instead"]), str(row["source"]))
        for row in rows
    }
