"""The launch that conditions of a release are tested against."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import filter as matching
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.engines.conditions import Condition, is_installed, unsupported
from gaudi_launch.core.models.cached_layers import cached_layers, has_linear_attention
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.engine_argument import json_keys

_log = logging.getLogger(__name__)
# vllm-project/vllm-gaudi#1749: a plane of the mask with 2 bytes for each pair of tokens
_PLANE = 1 << 31


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
        of_package = is_installed(word, self.packages)
        if of_package is not None:
            return of_package
        fact, of_model, pattern = word.partition(":")
        if of_model:
            return any(fnmatchcase(each, pattern) for each in self._facts[fact])
        name, above, least = word.partition(">")
        if above:
            return self._number(name) > int(least)
        name, valued, value = word.partition("=")
        name, _, key = name.partition(".")
        given = [self.settings[each] for each in matching(self.settings, name)]
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
    return tuple(each for each in unsupported(label) if all(map(launched.holds, each.when)))
