"""The records of an engine version's facts (profiles/engines/support)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import read_json, shipped_json
from gaudi_launch.core.models.model import Model

# the file of vLLM with its classes of models
REGISTRY = "vllm/model_executor/models/registry.py"


@dataclass(frozen=True)
class Expansion:
    """Weights that a version dequantises at load, by method and type of model.

    ``to`` is their type on the card, ``unless`` the VARIABLE=VALUE that prevents it ("": none).
    """

    method: str = ""
    model_type: str = ""
    to: str = ""
    unless: str = ""

    def fits(self, model: Model) -> bool:
        """Return True for a model of this method and type."""
        return (self.method, self.model_type) == (model.quantization, model.model_type)

    def is_prevented(self, variables: Mapping[str, str]) -> bool:
        """Return True where the user's variables keep the weights quantised."""
        name, _, value = self.unless.partition("=")
        return bool(name) and variables.get(name) == value

    def reason(self, engine: str) -> Message:
        if not self.unless:
            return message("support.expanded", engine=engine, method=self.method, to=self.to)
        return message(
            "support.expanded_unless",
            engine=engine,
            method=self.method,
            to=self.to,
            unless=self.unless,
        )


@dataclass(frozen=True)
class Version:
    """One engine version of the shipped data.

    ``complete`` is False where the vLLM under a plugin is unknown.
    """

    engine: str
    version: str
    repository: str
    commit: str
    date: str
    upstream: str = ""
    complete: bool = False
    classes: frozenset[str] = frozenset()
    methods: tuple[str, ...] = ()
    expanded: tuple[Expansion, ...] = ()
    transformers: str = ""
    sparse_as_dense: bool = False
    removed: Mapping[str, str] = field(default_factory=dict)
    validated: tuple[Mapping[str, Any], ...] = ()
    compact_gdn: str = ""
    mla: frozenset[str] = frozenset()
    # model types with a configuration class of vLLM's own
    configs: frozenset[str] = frozenset()
    # methods that vLLM loads as another one
    renamed: Mapping[str, str] = field(default_factory=dict)
    # what is allocated for each kind of layer, and the kinds of layers that each class makes
    cache: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # the rules of its bucket code (`core.buckets.ladder_rules`); empty for other engines
    buckets: Mapping[str, Any] = field(default_factory=dict)
    # models with states have prefix caching without an option
    hybrid_prefixes: bool = False
    # which models' states decide the size of a block (`facts.reading.state_blocks`)
    state_blocks: Mapping[str, Any] = field(default_factory=dict)
    # its bucket code and its parser were executed
    executed: bool = False
    # the file of an installed engine that ``classes`` were read from
    read_from: str = ""
    # the digest of the files that the facts are of (`core.engines.facts.reading.digest_of`)
    files: str = ""
    # the document of an installation; "": the shipped one of this release
    file: str = ""

    @property
    def document(self) -> Path:
        """Return the file with every fact of this version."""
        if self.file:
            return Path(self.file)
        return paths.profiles_dir() / f"engines/support/{self.engine}-{self.version}.json"

    @property
    def label(self) -> str:
        """Return the version as a value of ``--engine``."""
        if self.engine == self.version:
            return self.engine
        return f"{self.engine}@{self.version}"

    @property
    def evidence(self) -> str:
        """Return the source of the list of classes: an installed file, or a commit's.

        Return "" for a version without facts.
        """
        if self.read_from or not self.commit:
            return self.read_from
        if self.upstream:
            return f"{self.repository}@{self.commit} with vLLM {self.upstream}: {REGISTRY}"
        return f"{self.repository}@{self.commit}: {REGISTRY}"


def facts_in(file: Path) -> Any:
    """Return the document of a version's facts.

    To check one that belongs to this program takes eight times as long as to read it.
    """
    if file.is_relative_to(paths.profiles_dir()):
        return shipped_json(*file.relative_to(paths.profiles_dir()).parts)
    return read_json(file)


@lru_cache(maxsize=1024)
def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare releases by."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
