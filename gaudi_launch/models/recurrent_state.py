"""Size the states of linear attention (Gated DeltaNet), from config.json. Pure.

A state has one size for each request, whatever its length.
"""

from __future__ import annotations

from gaudi_launch.models.cached_layers import cached_layers
from gaudi_launch.models.config import text_part
from gaudi_launch.models.model import Model

# bytes of a number of a state, by the config's name of its type
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# slot 0 is not used, and the last one is for padding
_SPARE_SLOTS = 2
# vllm-project/vllm@0.32:vllm/v1/core/kv_cache_utils.py _get_kv_cache_groups_uniform_page_size
_NEARLY_EQUAL = 1.5


def gated_delta_bytes(model: Model, cards: int = 1) -> int | None:
    """Return the bytes of one layer's state for one request on one card.

    None where config.json does not state the layer's sizes.

    Shapes and types: vllm-project/vllm@0.32:vllm/model_executor/layers/mamba/mamba_utils.py
    gated_delta_net_state_shape, gated_delta_net_state_dtype; models/config.py mamba_ssm_dtype.
    """
    text = text_part(model.config)
    names = (
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )
    sizes = [text.get(name) for name in names]
    numbers = [size for size in sizes if isinstance(size, int) and size > 0]
    if len(numbers) != len(names):
        return None
    key_heads, value_heads, key_width, value_width, kernel = numbers
    own = _BYTES.get(model.dtype or "", 2)
    width = (2 * key_heads * key_width + value_heads * value_width) // cards
    convolution = width * (kernel - 1) * own
    recurrent = max(1, value_heads // cards) * value_width * key_width
    return convolution + recurrent * _BYTES.get(str(text.get("mamba_ssm_dtype")), own)


def compact_slots(model: Model, requests: int) -> int:
    """Return the states that are allocated in all for this number of requests.

    The layers are in groups of equal size; the first layers of all groups share one tensor, which
    has a slot for each request and group, and two more
    (vllm-project/vllm-gaudi@091bbadd:vllm_gaudi/v1/worker/hpu_model_runner.py:1420-1433,
    initialize_kv_cache).
    """
    layers = cached_layers(model)
    states, attention = layers.get("state", 0), layers.get("full", 0)
    if not states:
        return 0
    size = min(states, attention) or states
    if max(states, attention) < size * _NEARLY_EQUAL:
        size = max(states, attention)
    groups = -(-states // size)
    return min(size, states) * (requests * groups + _SPARE_SLOTS)


def compact_bytes(model: Model, requests: int, cards: int = 1) -> int:
    """Return the bytes of all states on one card; 0 where they are not known."""
    state = gated_delta_bytes(model, cards)
    if state is None:
        return 0
    return state * compact_slots(model, requests)
