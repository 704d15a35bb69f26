from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.models.fp8.quant_config import kv_cache_dtype


@pytest.mark.parametrize(
    ("config", "want"),
    [
        ({}, "fp8_inc"),
        ({"blocklist": {"types": [], "names": []}}, "fp8_inc"),
        ({"blocklist": {"types": ["VLLMKVCache"]}}, "auto"),
        ({"blocklist": {"names": ["k_cache"]}}, "auto"),
        ({"blocklist": {"types": ["Softmax"], "names": ["lm_head"]}}, "fp8_inc"),
    ],
)
def test_kv_cache_dtype(config: dict[str, Any], want: str) -> None:
    assert kv_cache_dtype(config) == want
