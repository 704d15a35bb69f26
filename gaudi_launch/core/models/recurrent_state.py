"""Size the states of Gated DeltaNet and Mamba2 from config.json. Pure.

A state has one size for each request, whatever its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gaudi_launch.core.models.cached_layers import cached_layers
from gaudi_launch.core.models.config import text_part
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import CacheRules, kv_bytes_per_token

# bytes of a number of a state, by the config's name of its type
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# slot 0 is not used, and the last one is for padding
_SPARE_SLOTS = 2
# the sizes of Mamba2's layers by the names of each family: granite-4.0-H, Bamba and Falcon-H1;
# Nemotron-H; Zamba2 (vllm-project/vllm 0.26.0:vllm/model_executor/models/,
# get_mamba_state_shape_from_config of each)
_MAMBA2 = (
    ("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv"),
    ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel"),
    ("n_mamba_heads", "mamba_headdim", "mamba_d_state", "mamba_ngroups", "mamba_d_conv"),
)
# vllm-project/vllm@0.32:vllm/v1/core/kv_cache_utils.py _get_kv_cache_groups_uniform_page_size
_NEARLY_EQUAL = 1.5


def gated_delta_bytes(model: Model, cards: int = 1) -> int | None:
    """Return the bytes of one layer's state for one request on one card.

    None where config.json does not state the layer's sizes.

    Shapes and types: vllm-project/vllm@0.32:vllm/model_executor/layers/mamba/mamba_utils.py
    gated_delta_net_state_shape, gated_delta_net_state_dtype; models/config.py mamba_ssm_dtype.
    """
    text = text_part(model.config) or model.config_sizes
    names = (
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )
    numbers = _numbers(text, names)
    if not numbers:
        return None
    key_heads, value_heads, key_width, value_width, kernel = numbers
    own = _BYTES.get(model.dtype or "", 2)
    width = (2 * key_heads * key_width + value_heads * value_width) // cards
    convolution = width * (kernel - 1) * own
    recurrent = max(1, value_heads // cards) * value_width * key_width
    return convolution + recurrent * _BYTES.get(str(text.get("mamba_ssm_dtype")), own)


def mamba2_bytes(model: Model, cards: int = 1) -> int | None:
    """Return the bytes of one Mamba2 layer's state for one request on one card.

    None where config.json does not state the layer's sizes.

    Shapes and types: vllm-project/vllm 0.26.0:vllm/model_executor/layers/mamba/mamba_utils.py
    mamba2_state_shape (each card has groups for its heads), mamba2_state_dtype.
    """
    text = text_part(model.config) or model.config_sizes
    found = next((numbers for names in _MAMBA2 if (numbers := _numbers(text, names))), [])
    if not found:
        return None
    heads, width, state, groups, kernel = found
    if groups % cards:
        groups = cards
    own = _BYTES.get(model.dtype or "", 2)
    convolution = (heads * width + 2 * groups * state) // cards * (kernel - 1) * own
    stated = text.get("mamba_ssm_cache_dtype") or text.get("mamba_ssm_dtype")
    if stated is None and model.model_type == "nemotron_h":
        # vllm-project/vllm 0.26.0:vllm/model_executor/models/config.py NemotronHForCausalLMConfig
        stated = "float32"
    return convolution + max(1, heads // cards) * width * state * _BYTES.get(str(stated), own)


def _numbers(text: Mapping[str, Any], names: tuple[str, ...]) -> list[int]:
    """Return the values of these names; empty unless all are positive integers."""
    sizes = [text.get(name) for name in names]
    numbers = [size for size in sizes if isinstance(size, int) and size > 0]
    return numbers if len(numbers) == len(names) else []


@dataclass(frozen=True)
class StatePage:
    """A block with the keys of ``tokens`` tokens or a state, per layer of a group.

    ``size``: its bytes on one card. A request has ``states`` blocks for its states, and a block for
    each ``tokens`` tokens in ``groups`` groups of attention layers.
    """

    tokens: int
    size: int
    states: int
    groups: int

    def blocks(self, length: int) -> int:
        """Return the blocks of a request with this number of tokens."""
        return self.states + self.groups * -(-length // self.tokens)


def page_of(model: Model, cards: int, kv_bytes: int, rules: CacheRules) -> StatePage | None:
    """Return the block that keys and states share; None without one.

    The smallest one as large as a state (vllm-project/vllm 0.26.0:vllm/platforms/interface.py
    _align_hybrid_block_size; vllm-project/vllm-gaudi@b059f9c9:vllm_gaudi/platform.py
    update_block_size_for_backend). Separate memory: hpu_worker.py determine_available_memory.
    """
    blocks, layers = rules.state_blocks, cached_layers(model)
    states, attention = layers.get("state", 0), layers.get("full", 0)
    state = gated_delta_bytes(model, cards) or mamba2_bytes(model, cards)
    token = kv_bytes_per_token(model, cards, kv_bytes, rules)
    if blocks is None or not (states and attention and state and token):
        return None
    keys = token // attention
    tokens = blocks.step * -(-state // (blocks.step * keys))
    size = _group_size(states, attention)
    each = tokens * keys + (state if blocks.apart else 0)
    return StatePage(tokens, size * each, -(-states // size) * blocks.copies, -(-attention // size))


def _group_size(states: int, attention: int) -> int:
    """Return a group's layers: the rarer kind's, or both where nearly equal."""
    size = min(states, attention) or states
    if max(states, attention) < size * _NEARLY_EQUAL:
        return max(states, attention)
    return size


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
    size = _group_size(states, attention)
    groups = -(-states // size)
    return min(size, states) * (requests * groups + _SPARE_SLOTS)


def compact_bytes(model: Model, requests: int, cards: int = 1) -> int:
    """Return the bytes of all states on one card; 0 where they are not known."""
    state = gated_delta_bytes(model, cards)
    if state is None:
        return 0
    return state * compact_slots(model, requests)
