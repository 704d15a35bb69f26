"""Facts of an installed release that the shipped ones are not of.

They are read from the installation once, by the program that makes the shipped ones, and kept by
version and digest of its files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.engines.facts.reading import ReleaseSource, digest_of, read, render, row_of
from gaudi_launch.core.engines.facts.source import UNTIL, FactsError
from gaudi_launch.core.engines.known_versions import (
    installed_versions,
    newest,
    shipped_version,
    version_row,
)

_log = logging.getLogger(__name__)

_PLUGIN = "vllm-gaudi"
# within which an installation answers
_SECONDS, _LATE = 30.0, 2.0


@dataclass(frozen=True)
class InstalledFacts:
    """The facts of an installation.

    ``assumed`` are sections taken from another release, ``only_read`` those that were read from
    the source and could not be executed.
    """

    version: str
    assumed: tuple[str, ...] = ()
    taken_from: str = ""
    only_read: tuple[str, ...] = ()

    def notes(self) -> list[Message]:
        """Return what a plan states of these facts."""
        found = [message("plan.facts_installed", version=self.version)]
        if names := ", ".join(self.assumed):
            found.append(message("plan.facts_assumed", names=names, engine=self.taken_from))
        if names := ", ".join(self.only_read):
            found.append(message("plan.facts_only_read", names=names, version=self.version))
        return found


def read_installed(python: str | None, facts: Mapping[str, str]) -> InstalledFacts | None:
    """Read and use the facts of an installed plugin whose files have no shipped ones.

    ``facts`` are those of `core.engines.detect`. Return None where the shipped ones are of these
    files, or where the files are not to be found here.
    """
    version, plugin = facts["plugin"], Path(facts.get("plugin_source", ""))
    upstream = Path(facts["source"]) if "source" in facts else None
    shipped = shipped_version(_PLUGIN, version)
    digest = digest_of(plugin, upstream) if upstream and plugin.is_dir() else ""
    if shipped is not None and digest in ("", shipped.files):
        return None
    nearest = shipped or newest(_PLUGIN)
    name = f"{_PLUGIN}-{version.replace('/', '-')}-{digest}.json"
    place = paths.cache_dir() / "engine-facts" / name
    document = _document(
        ReleaseSource(
            engine=_PLUGIN,
            version=version,
            checkout=plugin,
            repository="installed",
            commit="",
            date=time.strftime("%Y-%m-%d"),
            upstream=upstream,
            upstream_version=facts.get("vllm", ""),
            python=python or "",
        ),
        place,
    )
    if document is None:
        return InstalledFacts(version, ("options", "buckets", "models"), nearest.label)
    row = row_of(document)
    assumed = tuple(each for each in ("buckets", "options") if not document.get(each))
    only_read = [] if "options" in assumed or "parsers" in document else ["options"]
    if "state_blocks" in row["defaults"]:
        # `state_blocks` in reading.py says why they are not executed
        only_read.append("state blocks")
    if not row["buckets"]:
        row["buckets"] = dict(nearest.buckets)
    layers = {name: tuple(entry.get("layers", ())) for name, entry in document["models"].items()}
    found = version_row(row, document["models"], layers)
    installed_versions()[_PLUGIN, version] = replace(found, file=str(place))
    return InstalledFacts(version, assumed, nearest.label, tuple(only_read))


def _document(source: ReleaseSource, place: Path) -> dict[str, Any] | None:
    """Return the kept document of these files, or read it; None where that fails."""
    try:
        found: dict[str, Any] = read_json(place)
        if "late" not in found:
            return found
    except (OSError, ValueError) as error:
        _log.debug("no facts of this installation are kept: %s", error)
    before = UNTIL.set(min(UNTIL.get(), time.monotonic() + _SECONDS))
    try:
        document = read(source)
    except (FactsError, OSError, SyntaxError) as error:
        _log.warning("the facts of the installed %s are not read: %s", source.version, error)
        return None
    finally:
        left = UNTIL.get() - time.monotonic()
        UNTIL.reset(before)
    if left < _LATE:
        # its code may have had no time to answer: it is queried again
        document["late"] = True
    with best_effort(_log, "keep the facts of this installation"):
        paths.write_whole(place, render(document))
    return document
