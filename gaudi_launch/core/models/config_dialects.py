"""Translate a config.json into the usual names of its keys.

Most families write num_hidden_layers, num_key_value_heads or layer_types. The others mean the same
by other keys, or leave a number to their configuration class: here are the translations.
profiles/config-classes.json has what transformers' classes say (scripts/config_classes.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.reader import shipped_json

_FULL, _STATE, _WINDOW = "full_attention", "linear_attention", "sliding_attention"
_PATTERN = {"M": "mamba", "*": _FULL}
# a flag that transformers leaves out of config.json where it is that of the class
_FLAG = "tie_word_embeddings"
_LONGCAT = "longcat_flash"
_PARALLEL = ("falcon_h1",)
# transformers 5.19: classes that make the MLP four times as wide where config.json has no width
_FOUR_TIMES = ("bloom", "mpt", "falcon", "gpt2", "gptj", "gpt_bigcode", "gpt_neo", "codegen")
_WIDTHS = ("intermediate_size", "n_inner", "ffn_hidden_size")
# how the families count their experts (config.json of Mixtral, Qwen MoE, DeepSeek, Llama 4, GLM,
# DBRX, Jamba)
EXPERT_KEYS = (
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
    "num_routed_experts",
)
# the usual name and where a family has the number
_PLACES = (
    # dbrx
    ("num_experts", ("ffn_config", "moe_num_experts")),
    ("num_experts_per_tok", ("ffn_config", "moe_top_k")),
    ("intermediate_size", ("ffn_config", "ffn_hidden_size")),
    ("num_key_value_heads", ("attn_config", "kv_n_heads")),
    # step3: queries are in groups that share a key and a value
    # (vllm-project/vllm@0.26:vllm/model_executor/models/step3_text.py)
    ("num_key_value_heads", ("num_attention_groups",)),
    # THUDM/chatglm3-6b config.json
    ("vocab_size", ("padded_vocab_size",)),
    # lfm2, opt
    ("intermediate_size", ("block_ff_dim",)),
    ("intermediate_size", ("ffn_dim",)),
    # kimi_linear
    ("linear_num_heads", ("linear_attn_config", "num_heads")),
    ("linear_head_dim", ("linear_attn_config", "head_dim")),
    ("linear_conv_kernel_dim", ("linear_attn_config", "short_conv_kernel_size")),
    # whisper, bart: only the decoder writes text
    ("num_hidden_layers", ("decoder_layers",)),
    ("num_attention_heads", ("decoder_attention_heads",)),
    ("intermediate_size", ("decoder_ffn_dim",)),
    ("hidden_size", ("d_model",)),
)


def in_usual_names(document: Mapping[str, Any], kind: str, *, is_part: bool) -> dict[str, Any]:
    """Return a configuration, or a part of one, by the usual names of its keys.

    ``kind`` is its model type. A part (text_config, vision_config) leaves out the numbers that are
    those of its class; a complete config.json has them.
    """
    found = {**_of_class(document, kind, is_part=is_part), **document}
    found.update(_placed(found))
    for translate in (_widths, _enumerated, _by_modality, _layer_kinds):
        found.update(translate(found))
    if kind in _FOUR_TIMES and not any(found.get(name) for name in _WIDTHS):
        found["intermediate_size"] = 4 * _whole(found, "hidden_size")
    if kind == _LONGCAT:
        found.update(_doubled(found))
    if kind in _PARALLEL:
        found["layer_types"] = ["hybrid"] * _whole(found, "num_hidden_layers")
    return found


def _of_class(document: Mapping[str, Any], kind: str, *, is_part: bool) -> dict[str, Any]:
    """Return what a configuration leaves to its class, and its own names."""
    facts = _classes().get(kind, {})
    defaults = facts.get("defaults", {})
    known = {name: value for name, value in defaults.items() if is_part or name == _FLAG}
    for own, usual in facts.get("names", {}).items():
        if own in document and usual not in document:
            known[usual] = document[own]
    if any(key in document for key in EXPERT_KEYS):
        # step3p7: its class inherits another number by another of these names
        return {name: value for name, value in known.items() if name not in EXPERT_KEYS}
    return known


def text_type(kind: str) -> str:
    """Return the type of a multimodal class's language model; "" if unknown."""
    return str(_classes().get(kind, {}).get("text", ""))


@cache
def _classes() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = shipped_json("config-classes.json")["classes"]
    return found


def _placed(text: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers that the family has in a separate place."""
    found = {}
    for usual, place in _PLACES:
        number = _at(text, place)
        if number:
            found[usual] = number
    return found


def _at(text: Mapping[str, Any], place: tuple[str, ...]) -> int:
    inner: Any = text
    for name in place[:-1]:
        inner = inner.get(name)
        if not isinstance(inner, Mapping):
            return 0
    return _whole(inner, place[-1])


def _widths(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return the MLP's width of gemma3n, a list of equal ones, and of lfm2."""
    each = text.get("intermediate_size")
    if isinstance(each, list) and each:
        return {"intermediate_size": each[0]}
    adjusts = text.get("block_auto_adjust_ff_dim", True) is not False
    if adjusts and "conv_L_cache" in text and "num_experts" not in text:
        # two thirds rounded up: transformers 5.19:models/lfm2/modeling_lfm2.py Lfm2MLP
        factor = text.get("block_ffn_dim_multiplier", 1.0)
        multiple = _whole(text, "block_multiple_of") or 256
        raw = int(2 * _whole(text, "intermediate_size") / 3)
        if isinstance(factor, int | float):
            raw = int(factor * raw)
        return {"intermediate_size": multiple * -(-raw // multiple)}
    return {}


def _enumerated(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return step3's layers with experts, "4,5,6", as a flag for each layer."""
    listed = text.get("moe_layers_enum")
    if not isinstance(listed, str):
        return {}
    count = _whole(text, "num_hidden_layers")
    layers = {each.strip() for each in listed.split(",")}
    return {"moe_layer_freq": [int(str(index) in layers) for index in range(count)]}


def _by_modality(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return the experts of ernie4_5_vl_moe as the lists of ernie4_5_moe_vl.

    transformers 5.19: models/ernie4_5_vl_moe/configuration_ernie4_5_vl_moe.py has one number of
    experts for each of the widths.
    """
    widths, count = text.get("moe_intermediate_size"), text.get("moe_num_experts")
    kind = str(text.get("model_type"))
    if not (kind.startswith("ernie4_5_vl_moe") and isinstance(widths, list)):
        return {}
    counts = [count] * len(widths)
    found: dict[str, Any] = {"moe_num_experts": counts, "num_experts": counts}
    kinds = text.get("mlp_layer_types")
    if isinstance(kinds, list) and "sparse" in kinds:
        found["moe_layer_start_index"] = kinds.index("sparse")
    return found


def _layer_kinds(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind of each layer as layer_types."""
    listed = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(listed, list):
        return {"layer_types": listed}
    # nemotron_h
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return {"layer_types": [_PATTERN.get(letter, "none") for letter in pattern]}
    # mimo_v2_flash: 1 is a layer with a window
    windows = text.get("hybrid_layer_pattern")
    if isinstance(windows, list):
        return {"layer_types": [_WINDOW if flag else _FULL for flag in windows]}
    layers = range(_whole(text, "num_hidden_layers"))
    for key, state, full_layers in _FULL_LAYERS:
        if text.get(key):
            full = full_layers(text, layers)
            return {"layer_types": [_FULL if index in full else state for index in layers]}
    return {}


def _bamba(text: Mapping[str, Any], layers: range) -> set[int]:
    return set(_list(text, "attn_layer_indices"))


def _minimax(text: Mapping[str, Any], layers: range) -> set[int]:
    return {index for index, kind in enumerate(_list(text, "attn_type_list")) if kind == 1}


def _kimi(text: Mapping[str, Any], layers: range) -> set[int]:
    # counted from 1
    linear = text["linear_attn_config"]
    return {index - 1 for index in _list(linear, "full_attn_layers")}


def _qwen(text: Mapping[str, Any], layers: range) -> set[int]:
    every = _whole(text, "full_attention_interval") or 1
    return set(layers[every - 1 :: every])


def _jamba(text: Mapping[str, Any], layers: range) -> set[int]:
    period = _whole(text, "attn_layer_period") or 1
    return set(layers[_whole(text, "attn_layer_offset") :: period])


# the key that a family has, the kind of its other layers, and the layers with attention
_FULL_LAYERS = (
    ("attn_layer_indices", "mamba", _bamba),
    ("attn_type_list", _STATE, _minimax),
    ("linear_attn_config", _STATE, _kimi),
    ("full_attention_interval", _STATE, _qwen),
    ("attn_layer_period", "mamba", _jamba),
)


def _list(document: Any, name: str) -> list[int]:
    """Return the integers of a list; [] where there is none."""
    values = array(mapping(document).get(name))
    return [value for value in values if isinstance(value, int)]


def _doubled(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return longcat_flash's layers as twice as many, half with experts.

    vllm-project/vllm@0.26:vllm/model_executor/models/longcat_flash.py: each has two attentions.
    """
    return {
        "num_hidden_layers": 2 * (_whole(text, "num_layers") or _whole(text, "num_hidden_layers")),
        "intermediate_size": text.get("ffn_hidden_size"),
        "moe_intermediate_size": text.get("expert_ffn_hidden_size"),
        "num_experts_per_tok": text.get("moe_topk"),
        "decoder_sparse_step": 2,
        "enable_moe_block": True,
    }


def _whole(document: Mapping[str, Any], name: str) -> int:
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return max(0, value)
