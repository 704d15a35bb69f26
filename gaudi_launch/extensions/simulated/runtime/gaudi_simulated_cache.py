"""The KV cache of the planned model in vLLM's own classes.

Each layer has the specification that vllm-gaudi gives it (vllm-project/vllm-gaudi@091bbadd:
vllm_gaudi/v1/worker/hpu_model_runner.py, get_kv_cache_spec): full attention also for a sliding
window, a latent of one head for MLA, a state for linear attention and Mamba.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.v1.core.kv_cache_utils import _pool_bytes_per_block, get_kv_cache_groups
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec, MambaSpec, MLAAttentionSpec

_DTYPES = {1: torch.float8_e4m3fn, 2: torch.bfloat16, 4: torch.float32}


def cache_specs(kinds: Sequence[Mapping[str, Any]], config: VllmConfig) -> dict[str, KVCacheSpec]:
    """Return the specification of each layer of the launcher's list.

    An entry has ``kind`` (full, latent or state), ``layers``, ``heads`` and ``head_size`` on one
    card, and ``bytes`` of an element.
    """
    block = config.cache_config.block_size
    found: dict[str, KVCacheSpec] = {}
    for entry in kinds:
        for _ in range(entry["layers"]):
            found[f"model.layers.{len(found)}.attn"] = _spec(entry, block, config)
    pages = [spec.page_size_bytes for spec in found.values() if not isinstance(spec, MambaSpec)]
    # a state fills one block of the pool for each of its groups of layers
    return {name: _paged(spec, max(pages, default=0)) for name, spec in found.items()}


def _spec(entry: Mapping[str, Any], block: int, config: VllmConfig) -> KVCacheSpec:
    dtype = _DTYPES[entry.get("bytes", 2)]
    if entry["kind"] == "latent":
        return MLAAttentionSpec(
            block_size=block, num_kv_heads=1, head_size=entry["head_size"], dtype=dtype
        )
    if entry["kind"] == "state":
        return _state(block, config)
    return FullAttentionSpec(
        block_size=block, num_kv_heads=entry["heads"], head_size=entry["head_size"], dtype=dtype
    )


def _state(block: int, config: VllmConfig) -> MambaSpec:
    """Return the specification of a state: one for each request.

    With prefix caching also one at the ends of blocks (platform.py of the plugin: mode "align").
    """
    cache = config.cache_config
    size = block
    if cache.enable_prefix_caching:
        cache.mamba_cache_mode = "align"
    else:
        cache.mamba_cache_mode = "none"
        size = -(-config.model_config.max_model_len // block) * block
    return MambaSpec(
        block_size=size,
        shapes=((1,),),
        dtypes=(torch.float32,),
        mamba_cache_mode=cache.mamba_cache_mode,
    )


def _paged(spec: KVCacheSpec, page: int) -> KVCacheSpec:
    if not isinstance(spec, MambaSpec):
        return spec
    # its only element of four bytes fits in any page
    return replace(spec, page_size_padded=page or None)


def pool_bytes(specs: Mapping[str, KVCacheSpec], blocks: int, config: VllmConfig) -> int:
    """Return the bytes from which vLLM makes ``blocks`` blocks and its null block."""
    groups = get_kv_cache_groups(config, dict(specs))
    each: int = _pool_bytes_per_block(config, groups)
    return (blocks + 1) * each
