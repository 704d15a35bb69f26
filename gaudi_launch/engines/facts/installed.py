"""The facts of an installed release that none are shipped for.

They are read from the installation once, by the program that makes the shipped ones, and kept by
version and digest of its files.
"""

from __future__ import annotations

import hashlib
import logging
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gaudi_launch import paths
from gaudi_launch.debug_log import best_effort
from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.facts.reading import ReleaseSource, read, render, row_of
from gaudi_launch.engines.facts.source import FactsError
from gaudi_launch.engines.support import add_installed, newest, version_row, versions
from gaudi_launch.reader import read_json

_log = logging.getLogger(__name__)

_PLUGIN = "vllm-gaudi"
_SECONDS = 30.0
# files of vLLM that decide facts; of the plugin all do
_UPSTREAM = (
    "vllm/envs.py",
    "vllm/engine/arg_utils.py",
    "vllm/entrypoints/openai/cli_args.py",
    "vllm/model_executor/models/registry.py",
)


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


def read_installed(installed: Installed | None) -> InstalledFacts | None:
    """Read and use the facts of an installed plugin without shipped ones.

    Return None where the shipped ones are of this release, or no plugin is installed.
    """
    if installed is None or "plugin" not in installed.facts:
        return None
    version = installed.facts["plugin"]
    if version in [each.version for each in versions() if each.engine == _PLUGIN]:
        return None
    nearest = newest(_PLUGIN)
    document = _document(installed, version)
    if document is None:
        return InstalledFacts(version, ("options", "buckets", "models"), nearest.label)
    row = row_of(document)
    assumed = tuple(each for each in ("buckets", "options") if not document.get(each))
    only_read = () if "options" in assumed or "parsers" in document else ("options",)
    if not row["buckets"]:
        row["buckets"] = dict(nearest.buckets)
    layers = {name: tuple(entry.get("layers", ())) for name, entry in document["models"].items()}
    found = version_row(row, document["models"], layers)
    add_installed(replace(found, file=str(_place(installed.facts, version))))
    return InstalledFacts(version, assumed, nearest.label, only_read)


def _document(installed: Installed, version: str) -> dict[str, Any] | None:
    """Return the kept document of these files, or read it; None where that fails."""
    facts = installed.facts
    place = _place(facts, version)
    try:
        found: dict[str, Any] = read_json(place)
        return found
    except (OSError, ValueError) as error:
        _log.debug("no facts of this installation are kept: %s", error)
    source = ReleaseSource(
        engine=_PLUGIN,
        version=version,
        checkout=Path(facts.get("plugin_source", "")),
        repository="installed",
        commit="",
        date=time.strftime("%Y-%m-%d"),
        upstream=Path(facts["source"]) if "source" in facts else None,
        upstream_version=facts.get("vllm", ""),
        python=installed.python,
        seconds=_SECONDS,
    )
    try:
        document = read(source)
    except (FactsError, OSError, SyntaxError, subprocess.TimeoutExpired) as error:
        _log.warning("the facts of the installed %s are not read: %s", version, error)
        return None
    with best_effort(_log, "keep the facts of this installation"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(render(document), encoding="utf-8")
    return document


def _place(facts: Mapping[str, str], version: str) -> Path:
    """Return the file of the facts: one for each version and digest of its files."""
    digest = hashlib.sha256()
    plugin, upstream = Path(facts.get("plugin_source", "")), Path(facts.get("source", ""))
    files = sorted((plugin / "vllm_gaudi").rglob("*.py"))
    for path in (*files, *(upstream / name for name in _UPSTREAM)):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    name = f"{_PLUGIN}-{version.replace('/', '-')}-{digest.hexdigest()[:16]}.json"
    return paths.cache_dir() / "engine-facts" / name
