"""What a QUANT_CONFIG file of the Intel Neural Compressor asks of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def kv_cache_dtype(config: Mapping[str, Any]) -> str:
    """``auto`` when the blocklist mentions a cache (it stays bf16), else ``fp8_inc``.

    Source: HabanaAI/vllm-fork@aice/v1.22.0:vllm/config.py (INC QUANT_CONFIG).
    """
    blocklist = config.get("blocklist")
    if not isinstance(blocklist, Mapping):
        return "fp8_inc"
    words = [str(word) for key in ("types", "names") for word in blocklist.get(key) or ()]
    return "auto" if any("cache" in word.lower() for word in words) else "fp8_inc"
