"""Make vLLM's KV cache of each kind of model; run by the CPU engine's interpreter.

`simulated_caches.py FOLDER`: a folder with the config.json of a stand-in. One JSON object is
printed: for each case its blocks and the names of the classes.
"""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

# the import of vLLM: 10 s of processor time with the search for garbage, 7 without
gc.disable()

BLOCKS = 1000
CASES: dict[str, list[dict[str, Any]]] = {
    "dense": [{"kind": "full", "layers": 4, "heads": 8, "head_size": 128, "bytes": 2}],
    "fp8 cache": [{"kind": "full", "layers": 4, "heads": 1, "head_size": 128, "bytes": 1}],
    "latent": [{"kind": "latent", "layers": 3, "heads": 1, "head_size": 576, "bytes": 2}],
    "two widths": [
        {"kind": "full", "layers": 5, "heads": 8, "head_size": 256, "bytes": 2},
        {"kind": "full", "layers": 1, "heads": 4, "head_size": 512, "bytes": 2},
    ],
    "hybrid": [
        {"kind": "full", "layers": 2, "heads": 2, "head_size": 256, "bytes": 2},
        {"kind": "state", "layers": 6, "heads": 1, "head_size": 0, "bytes": 2},
    ],
}


def made(folder: str, kinds: list[dict[str, Any]], *, prefix_caching: bool) -> list[Any]:
    """Return the blocks that vLLM makes of one case, and its classes."""
    from gaudi_simulated_cache import cache_specs, pool_bytes
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.kv_cache_utils import get_kv_cache_configs
    from vllm.v1.kv_cache_layout import KVCacheLayout

    model = ModelConfig(
        model=folder, skip_tokenizer_init=True, max_model_len=4096, dtype="bfloat16"
    )
    scheduling = SchedulerConfig(
        max_num_seqs=8, max_num_batched_tokens=2048, max_model_len=4096, is_encoder_decoder=False
    )
    config = VllmConfig(
        model_config=model,
        scheduler_config=scheduling,
        cache_config=CacheConfig(block_size=128, enable_prefix_caching=prefix_caching),
        device_config=DeviceConfig("cpu"),
    )
    config.cache_config.block_size = 128
    config.cache_config.enable_prefix_caching = prefix_caching
    config.cache_config.kv_cache_layout = KVCacheLayout.BLNHC.name
    specs = cache_specs(kinds, config)
    caches = get_kv_cache_configs(config, [specs], [pool_bytes(specs, BLOCKS, config)])
    return [caches[0].num_blocks, sorted({type(spec).__name__ for spec in specs.values()})]


def main(folder: str) -> None:
    found: dict[str, list[Any]] = {}
    for name, kinds in CASES.items():
        found[name] = made(folder, kinds, prefix_caching=True)
    found["hybrid without prefix caching"] = made(folder, CASES["hybrid"], prefix_caching=False)
    print(f"\n{json.dumps(found)}")


if __name__ == "__main__":
    main(sys.argv[1])
