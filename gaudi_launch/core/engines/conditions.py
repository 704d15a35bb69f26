"""Conditions and features of a release that concern one launch.

The rows are those of profiles/engines/changes/conditions.yaml, which explains its keys.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.base.yaml_reader import shipped
from gaudi_launch.core.engines.engine_version import version_numbers
from gaudi_launch.core.models.cached_layers import cached_layers, has_linear_attention
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine_argument import json_keys

_log = logging.getLogger(__name__)
# vllm-project/vllm-gaudi#1749: a plane of the mask with 2 bytes for each pair of tokens
_PLANE = 1 << 31
_NEWEST = (1 << 30,)


@dataclass(frozen=True)
class Condition:
    """One row of the table: releases, what it is true of, and what follows.

    ``setting`` are the values that it sets, None leaves one off; without any it warns. ``cause`` is
    a pattern of the cause of `why`, and its evidence, that it explains. ``feature``: the row is a
    release's answer about it. ``note``: the sentence of the release notes.
    """

    id: str
    thread: str
    when: tuple[str, ...]
    state: str = "code"
    date: str = ""
    feature: str = ""
    note: str = ""
    engine: str = "vllm-gaudi"
    versions: tuple[str, ...] = ()
    since: str = "0"
    fixed: str = ""
    setting: Mapping[str, str | None] = field(default_factory=dict)
    cause: str = ""

    @property
    def url(self) -> str:
        """Return the address of the thread or of the document."""
        repository, at, place = self.thread.partition("@")
        if at:
            return f"https://github.com/{repository}/blob/{place.replace(':', '/', 1)}"
        return f"https://github.com/{self.thread.replace('#', '/issues/')}"

    @property
    def sentence(self) -> Message:
        """Return what is known, and where it is stated."""
        if self.feature:
            return self.answer(self.engine)
        return message("engines.known_problem", why=self.problem.render(), url=self.url)

    @property
    def status(self) -> str:
        """Return "supported", "limited", "no" or "unknown" of a feature."""
        return self.id.removeprefix(f"{self.feature}_")

    def answer(self, label: str) -> Message:
        """Return the sentence about a feature of this engine version."""
        return message(f"features.{self.id}", engine=label)

    def left_off(self, name: str) -> Message:
        """Return the sentence about a setting that is left off for it."""
        return message("engines.left_off", name=name, why=self.problem.render(), url=self.url)

    @property
    def problem(self) -> Message:
        """Return what is known of the problem, without its thread."""
        if self.note:
            return message("engines.problem_noted", fixed=self.fixed, note=self.note)
        return message(f"engines.problem_{self.id}")

    def has(self, label: str) -> bool:
        """Return True for an engine version that has it."""
        engine, at, version = label.partition("@")
        if not at:
            # a branch of the fork without a version
            return label in self.versions
        if self.versions or engine != self.engine:
            return version in self.versions and engine == self.engine
        numbers = _NEWEST if version == "main" else version_numbers(version)
        fixed = version_numbers(self.fixed) if self.fixed else (*_NEWEST, 0)
        return version_numbers(self.since) <= numbers < fixed


@cache
def conditions() -> tuple[Condition, ...]:
    """Return every row of the table, as its source had it on the date stated."""
    found = []
    for row in shipped("engines", "changes", "conditions.yaml")["conditions"]:
        lists: dict[str, Any] = {name: tuple(row.get(name, ())) for name in ("when", "versions")}
        found.append(Condition(**{**row, **lists}))
    return tuple(found)


@dataclass(frozen=True)
class Launched:
    """A model on a product with the options and variables of a launch.

    What is not known is empty; a bare option's value is "". ``packages`` are those of the engine's
    environment: one that is not known is the newest.
    """

    model: Model
    product: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)

    def holds(self, words: str) -> bool:
        """Return True if one of ``a|b`` is true of it."""
        return any(self._holds(word) for word in words.split("|"))

    def _holds(self, word: str) -> bool:
        package, ranged, least = word.partition(">=")
        if ranged:
            found = self.packages.get(package)
            return not found or version_numbers(found) >= version_numbers(least)
        fact, of_model, pattern = word.partition(":")
        if of_model:
            return any(fnmatchcase(each, pattern) for each in self._facts[fact])
        name, above, least = word.partition(">")
        if above:
            return self._number(name) > int(least)
        name, valued, value = word.partition("=")
        name, _, key = name.partition(".")
        given = [self.settings[each] for each in self.settings if fnmatchcase(each, name)]
        if key:
            given = [json_keys(each).get(key, "") for each in given]
        return any(fnmatchcase(each, value if valued else "*") for each in given)

    def _number(self, name: str) -> int:
        text = self.settings.get(name, "")
        return int(text) if text.isdecimal() else 0

    def _has_penalty(self) -> bool:
        """Return True for a folder whose generation_config.json sets a penalty.

        Each request has it then (vllm-project/vllm 0.26.0: vllm/config/model.py,
        get_diff_sampling_param).
        """
        try:
            stored = read_json(Path(self.model.path) / "generation_config.json")
        except (OSError, ValueError) as error:
            _log.debug("no generation_config.json of the model: %s", error)
            return False
        penalty = mapping(stored).get("repetition_penalty", 1)
        return self.settings.get("--generation-config") != "vllm" and penalty != 1

    @cached_property
    def _facts(self) -> Mapping[str, Iterable[str]]:
        model, length = self.model, self._number("--max-model-len")
        step = min(length, self._number("--max-num-batched-tokens"))
        true_of = {
            "gdn": has_linear_attention(model),
            "moe": bool(model.moe),
            "int8": _is_int8(model),
            "penalty": bool(model.path) and self._has_penalty(),
            "wide_mask": 2 * step * length >= _PLANE,
        }
        return {
            "class": (model.architecture or "",),
            "type": (model.model_type or "",),
            "method": (model.quantization or "",),
            "card": (self.product,),
            "has": (*model.multimodal, *cached_layers(model), *filter(true_of.get, true_of)),
        }


def _is_int8(model: Model) -> bool:
    """Return True for weights and activations of 8-bit integers (compressed-tensors)."""
    stored = mapping(model.config.get("quantization_config"))
    for group in mapping(stored.get("config_groups")).values():
        weights = mapping(mapping(group).get("weights"))
        if (weights.get("type"), weights.get("num_bits")) == ("int", 8):
            return bool(mapping(group).get("input_activations"))
    return False


def concerning(label: str, launched: Launched) -> tuple[Condition, ...]:
    """Return the conditions of an engine version that are true of this launch."""
    having = (each for each in conditions() if each.has(label) and each.status != "supported")
    return tuple(each for each in having if all(map(launched.holds, each.when)))


def features_of(label: str) -> tuple[Condition, ...]:
    """Return an engine version's answers, one for each feature."""
    rows = [each for each in conditions() if each.feature]
    names = dict.fromkeys(each.feature for each in rows)
    answers = {name: Condition("unknown", "", (), feature=name) for name in names}
    answers.update((each.feature, each) for each in rows if each.has(label))
    return tuple(answers.values())
