"""The versions of engines with shipped facts (profiles/engines/support).

The facts were read from the engines' source by ``scripts/engine_facts.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import shipped_json
from gaudi_launch.core.engines.engine_version import Version, facts_in, version_numbers


@cache
def versions() -> tuple[Version, ...]:
    """Return every version of the shipped data, engines by name, the oldest first."""
    document = shipped_json("engines", "support", "index.json")
    classes: list[set[str]] = [set() for _ in document["versions"]]
    for name, numbers in document["models"].items():
        for number in numbers:
            classes[number].add(name)
    layers: list[dict[str, tuple[str, ...]]] = [{} for _ in document["versions"]]
    for name, answers in document["layers"].items():
        for kinds, numbers in answers.items():
            for number in numbers:
                layers[number][name] = tuple(kinds.split())
    found = list(map(version_row, document["versions"], classes, layers))
    # a post release is made after newer ones: numbers order them, not dates
    found.sort(key=lambda each: (each.engine, is_branch(each), version_numbers(each.version)))
    return tuple(found)


def is_branch(version: Version) -> bool:
    """Return True for a branch, which has no release's number."""
    return not version.version[:1].isdecimal()


@cache
def installed_versions() -> dict[tuple[str, str], Version]:
    """Return the facts of installed releases in force, by engine and version."""
    return {}


def version_row(
    row: Mapping[str, Any], classes: Iterable[str], layers: Mapping[str, tuple[str, ...]]
) -> Version:
    """Return the version of a row of the index (`core.engines.facts.reading.row_of`)."""
    packages = row["transformers"]
    # the plugin's own requirement is installed last and wins
    spec = packages.get("requirements.txt") or next(iter(packages.values()), "")
    quantization, defaults = row["quantization"], row["defaults"]
    stated = {
        **row,
        "upstream": row.get("upstream", {}).get("version", ""),
        "classes": list(classes),
        "methods": quantization["supported"],
        "expanded": quantization["expanded_at_load"],
        "transformers": spec,
        "sparse_as_dense": bool(row["sparse_as_dense"]),
        "renamed": {name: entry["to"] for name, entry in quantization["renamed"].items()},
        "layers": layers,
        "hybrid_prefixes": bool(defaults.get("hybrid_prefix_caching", {}).get("value")),
        "state_blocks": defaults.get("state_blocks", {}),
    }
    return codec.read(Version, stated)


def version_of(engine: str, version: str) -> Version | None:
    """Return the data of exactly this version; None where there is none.

    It is that of an installed release, or the shipped one. ``engine`` and ``version`` are
    those of an `EngineIdentity`; the facts of a branch are under its name (``deepseek_r1``).
    """
    shipped = shipped_version(engine, version) or shipped_version(version, version)
    return installed_versions().get((engine, version)) or shipped


def shipped_version(engine: str, version: str) -> Version | None:
    """Return the shipped data of exactly this version; None where there is none."""
    return next(
        (each for each in versions() if (each.engine, each.version) == (engine, version)), None
    )


@cache
def divides_into_stages(engine: str, version: str, architecture: str) -> bool:
    """Return True if the class of this version can be divided into pipeline stages.

    vLLM stops at another class (vllm/config.py verify_with_parallel_config). False where the class
    or the version is not known.
    """
    facts = version_of(engine, version)
    if facts is None:
        return False
    models = facts_in(facts.document)["models"]
    return "pipeline" in models.get(architecture, {}).get("interfaces", ())


def releases(engine: str) -> tuple[Version, ...]:
    """Return an engine's releases with shipped facts, oldest first, no branches."""
    return tuple(each for each in versions() if each.engine == engine and not is_branch(each))


def newest(engine: str) -> Version:
    """Return the newest release of an engine that has one with a complete list."""
    return next(each for each in reversed(versions()) if each.engine == engine and each.complete)


def matching(engine: str, version: str, known: tuple[Version, ...] = ()) -> Version | None:
    """Return the newest version that a user's ``0.26`` or tag ``v0.26.0`` names.

    Return None where no version begins so. ``known``: instead of those of the shipped data.
    """
    known = (*installed_versions().values(), *(known or versions()))
    wanted = version.removeprefix("v").split(".")
    found = [
        each
        for each in known
        if each.engine == engine and each.version.split(".")[: len(wanted)] == wanted
    ]
    return max(
        found,
        key=lambda each: (each.version == version, version_numbers(each.version)),
        default=None,
    )


def unknown_version(found: str) -> LaunchError:
    """Return the error (USAGE) of an engine, or a version of it, without facts."""
    name, _, version = found.partition("@")
    if version and any(each.executed for each in releases(name)):
        return not_offered(name, version)
    known = ", ".join(each.label for each in versions())
    return LaunchError("support.unknown_version", ExitCode.USAGE, found=found, known=known)


def not_offered(engine: str, version: str) -> LaunchError:
    """Return the error (USAGE) of a release that is planned only when installed.

    It lists those that were executed, and the nearest of them by number.
    """
    known = [each for each in releases(engine) if each.executed]
    facts = matching(engine, version)
    id = "support.not_executed" if facts is not None else "support.no_facts"
    near = known[-1]
    if version[:1].isdecimal():
        near = min(known, key=lambda each: _distance(each.version, version))
    return LaunchError(
        id,
        ExitCode.USAGE,
        found=f"{engine}@{version}",
        known=", ".join(each.label for each in reversed(known)),
        near=near.label,
        date=max(each.date for each in known),
    )


def _distance(left: str, right: str) -> float:
    """Return the distance of two versions, each number a thousand of the next."""
    numbers = (enumerate(version_numbers(each)) for each in (left, right))
    one, two = (sum(n / 1000.0**at for at, n in each) for each in numbers)
    return abs(one - two)


def newest_or_none(engine: str) -> Version | None:
    """Return the newest release of an engine with a complete list.

    Return None where there is none.
    """
    newest_first = (each for each in reversed(versions()) if each.engine == engine)
    return next((each for each in newest_first if each.complete), None)
