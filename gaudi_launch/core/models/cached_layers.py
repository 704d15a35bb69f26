"""Count a model's layers by the cache that they need, from config.json. Pure.

What an engine allocates for each kind is the engine's answer (`core.engines.layer_caches`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.optional import value_or
from gaudi_launch.core.models.config import text_part
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.parameter_count import layer_kinds

CacheKind = Literal["full", "sliding", "chunked", "latent", "state", "cross", "shared"]
_STATES = ("linear", "mamba", "conv")
# HabanaAI/vllm-fork@17a7946f:vllm/config.py:568: gemma2 alternates without naming it in its config
_ALTERNATING = {"gemma2": 2}
# vllm-project/vllm 0.26.0:vllm/model_executor/models/qwen3_next.py, qwen3_5.py
_GDN_CLASSES = ("Qwen3Next", "Qwen3_5")
# transformers 5.19 Llama4TextConfig.no_rope_layers: every fourth layer attends to all tokens
_LLAMA4_PERIOD = 4


def cached_layers(model: Model) -> Mapping[CacheKind, int]:
    """Return the number of layers by kind; empty where they are not known.

    Without config.json, a profile's facts give the kinds: MLA, or attention and states.
    """
    if not model.layers:
        return {}
    text = text_part(model.config)
    if not text:
        if model.mla_rank:
            return {"latent": model.layers}
        attention = value_or(model.attention_layers, model.layers)
        by_facts: dict[CacheKind, int] = {"full": attention, "state": model.layers - attention}
        return {kind: count for kind, count in by_facts.items() if count}
    kinds = layer_kinds(model)
    own = len(kinds) - _number(text, "num_kv_shared_layers")
    found: Counter[CacheKind] = Counter()
    for index, named in enumerate(kinds):
        kind = _kind(model, text, index, named)
        if named == "both":
            found["state"] += 1
        if kind is not None:
            found[kind if index < own else "shared"] += 1
    return found


def _kind(model: Model, text: Mapping[str, Any], index: int, named: str) -> CacheKind | None:
    if named == "none":
        return None
    if named in _STATES:
        return "state"
    if named == "latent" and model.mla_rank:
        return "latent"
    if named == "sliding":
        if "chunked" in _listed(text, index):
            return "chunked"
        return "sliding"
    if _is_chunked(text, index):
        return "chunked"
    return "sliding" if _has_window(text, index) else "full"


def _listed(text: Mapping[str, Any], index: int) -> str:
    kinds = text.get("layer_types")
    if isinstance(kinds, list) and index < len(kinds):
        return str(kinds[index])
    return ""


def _is_chunked(text: Mapping[str, Any], index: int) -> bool:
    """Return True for a layer of llama4 that attends to one chunk."""
    if _listed(text, index) or not _number(text, "attention_chunk_size"):
        return False
    rotated = text.get("no_rope_layers")
    if isinstance(rotated, list) and index < len(rotated):
        return bool(rotated[index])
    return (index + 1) % _LLAMA4_PERIOD != 0


def _has_window(text: Mapping[str, Any], index: int) -> bool:
    """Return True for a layer with a window that no list of kinds names."""
    if (
        _listed(text, index)
        or not _number(text, "sliding_window")
        or text.get("use_sliding_window") is False
    ):
        return False
    if text.get("use_sliding_window") is True and isinstance(text.get("max_window_layers"), int):
        return bool(index >= text["max_window_layers"])
    period = _number(text, "sliding_window_pattern") or _ALTERNATING.get(
        str(text.get("model_type")), 0
    )
    return not period or (index + 1) % period != 0


def _number(document: Mapping[str, Any], name: str) -> int:
    value = document.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return 0


def has_linear_attention(model: Model) -> bool:
    """Return True for a model with layers of linear attention (GDN).

    Without config.json, the class decides.
    """
    if not model.config:
        return (model.architecture or "").startswith(_GDN_CLASSES)
    part = mapping(model.config.get("text_config")) or model.config
    kinds = part.get("layer_types")
    if isinstance(kinds, list) and "linear_attention" in kinds:
        return True
    return isinstance(part.get("linear_num_value_heads"), int)
