"""The cache that an engine version allocates for a model's layers.

The rules are those of profiles/engines/support, read by scripts/engine_facts.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.models.cached_layers import CacheKind, cached_layers
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.support_answer import LayerCache

# vllm/envs.py: bool(int(os.getenv("VLLM_MLA_DISABLE", "0")))
_MLA_OFF = "VLLM_MLA_DISABLE"
_KINDS: tuple[CacheKind, ...] = get_args(CacheKind)


def layer_caches(
    model: Model, facts: Version, variables: Mapping[str, str]
) -> tuple[LayerCache, ...]:
    """Return what this version allocates for each kind of the model's layers.

    The kinds are those of config.json; for a class by its name, those that the class makes, without
    their numbers. Empty for a version without facts.
    """
    if not facts.cache:
        return ()
    made = facts.layers.get(model.architecture or "", ())
    counted: dict[CacheKind, int | None] = dict(cached_layers(model))
    if not counted:
        counted = {kind: None for kind in _KINDS if kind in made}
    elif "cross" in made:
        counted["cross"] = None
    return tuple(
        _layer(model, facts, variables, kind, counted[kind]) for kind in _KINDS if kind in counted
    )


def _layer(
    model: Model, facts: Version, variables: Mapping[str, str], kind: CacheKind, layers: int | None
) -> LayerCache:
    rule = facts.cache.get(kind)
    if kind == "shared" and rule is None:
        # a version that does not know shared layers gives them a separate cache
        rule = facts.cache["full"]
    if rule is None:
        return LayerCache(kind, layers, "unknown", message(_UNKNOWN))
    allocates = rule["allocates"]
    if kind == "latent" and not compresses(model, facts, variables):
        allocates = "full"
    source = f"{facts.repository}@{facts.commit}:{rule['source']}"
    return LayerCache(kind, layers, allocates, _sentence(model, kind, allocates), source)


def compresses(model: Model, facts: Version, variables: Mapping[str, str]) -> bool:
    """Return True where this version keeps MLA's latent for this type of model.

    True also where the type is not known.
    """
    if variables.get(_MLA_OFF, "0") not in ("", "0"):
        return False
    text = model.config.get("text_config")
    inner = text.get("model_type") if isinstance(text, Mapping) else None
    types = {kind for kind in (model.model_type, inner) if isinstance(kind, str)}
    return not types or not facts.mla or bool(types & facts.mla)


_UNKNOWN = "support.cache_unknown"
# of kinds that have one, whatever a version allocates
_OF_KIND: Mapping[CacheKind, str] = {
    "full": "support.cache_full",
    "sliding": "support.cache_sliding_as_full",
    "chunked": "support.cache_chunked_as_full",
    "latent": "support.cache_not_compressed",
}
_OF_ALLOCATION: Mapping[tuple[CacheKind, str], str] = {
    ("state", "state"): "support.cache_state_state",
    ("state", "model"): "support.cache_state_model",
    ("state", "none"): "support.cache_state_none",
    ("state", "refused"): "support.cache_state_refused",
    ("cross", "refused"): "support.cache_cross_refused",
    ("shared", "none"): "support.cache_shared_none",
    ("shared", "full"): "support.cache_shared_full",
}


def _sentence(model: Model, kind: CacheKind, allocates: str) -> Message:
    if kind == "latent" and allocates == "latent":
        width = "kv_lora_rank + qk_rope_head_dim"
        if model.mla_rank:
            width = str(model.mla_rank)
        return message("support.cache_latent", width=width)
    return message(_OF_KIND.get(kind) or _OF_ALLOCATION.get((kind, allocates), _UNKNOWN))


def refuses_layers(found: tuple[LayerCache, ...]) -> bool:
    """Return True where this version stops when it makes these layers' cache.

    vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/v1/worker/hpu_model_runner.py:1749 raises
    NotImplementedError for cross-attention, that of 0.10 for states, too.
    """
    return any(each.allocates == "refused" for each in found)


def cache_limits(found: tuple[LayerCache, ...], engine: str, model: Model) -> tuple[Message, ...]:
    """Return sentences about layers for which this version has no cache."""
    limits = []
    for each in found:
        if each.kind == "state" and each.allocates in ("none", "refused"):
            limits.append(message("support.no_state", engine=engine, model=model.name))
        if each.kind == "cross" and each.allocates == "refused":
            limits.append(message("support.no_cross", engine=engine, model=model.name))
    return tuple(limits)
