#!/usr/bin/env python3
"""Write the names and defaults of transformers' configuration classes.

    python scripts/config_classes.py

Run it in an interpreter with transformers (that of an installed engine). For each model type:
``names``, the class's own names of the usual keys (n_layer for num_hidden_layers), ``defaults``,
the numbers and flags that a config.json may leave out, and ``text``, the type of the language model
of a multimodal class. A default that a class derives from other values is not one. Writes
``profiles/config-classes.json``; the same release gives the same file.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).resolve().parent.parent / "profiles" / "config-classes.json"
# the keys that decide a model's parameters, its cache or its steps
KEYS = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
    "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings",
    "tie_word_embeddings", "sliding_window", "use_sliding_window", "max_window_layers",
    "sliding_window_pattern", "num_experts", "num_local_experts", "n_routed_experts",
    "moe_num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "shared_expert_intermediate_size", "n_shared_experts", "num_shared_experts",
    "moe_num_shared_experts", "first_k_dense_replace", "decoder_sparse_step",
    "interleave_moe_layer_step", "num_dense_layers", "moe_layer_start_index",
    "expert_layer_period", "expert_layer_offset", "attn_layer_period", "attn_layer_offset",
    "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
    "linear_value_head_dim", "linear_conv_kernel_dim", "full_attention_interval",
    "mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_d_conv", "mamba_expand",
    "mamba_n_groups", "mamba_d_ssm", "num_kv_shared_layers", "hidden_size_per_layer_input",
    "vocab_size_per_layer_input", "global_head_dim", "num_global_key_value_heads",
    "depth", "embed_dim", "patch_size", "image_size", "temporal_patch_size", "spatial_merge_size",
    "out_hidden_size", "projection_dim", "mlp_ratio", "encoder_layers", "encoder_ffn_dim",
    "encoder_attention_heads", "d_model", "num_mel_bins", "multi_query", "new_decoder_architecture",
)  # fmt: skip


def _class_facts(kind: str, config: Any) -> dict[str, Any]:
    """Return the names and defaults of one configuration class."""
    names = {
        own: usual
        for usual, own in config.attribute_map.items()
        if usual in KEYS and isinstance(own, str) and own != usual
    }
    defaults = {}
    for field in dataclasses.fields(config):
        name = names.get(field.name, field.name)
        if name in KEYS and type(field.default) in (int, bool):
            defaults[name] = field.default
    facts: dict[str, Any] = {}
    if names:
        facts["names"] = dict(sorted(names.items()))
    if defaults:
        facts["defaults"] = dict(sorted(defaults.items()))
    text = _text_type(kind, config)
    if text:
        facts["text"] = text
    return facts


def _text_type(kind: str, config: Any) -> str:
    """Return the type of a multimodal class's language model; "" if none."""
    if "text_config" not in config.sub_configs:
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            inner = getattr(config(), "text_config", None)
        except (ImportError, ValueError):
            # a part of it needs a package that is not installed
            return ""
    found = getattr(inner, "model_type", "")
    return found if found != kind else ""


def classes() -> dict[str, Any]:
    """Return every configuration class by its model type, with those of their parts."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    found: dict[str, Any] = {}
    waiting = [CONFIG_MAPPING[kind] for kind in CONFIG_MAPPING]
    while waiting:
        config = waiting.pop(0)
        if config.model_type and config.model_type not in found:
            found[config.model_type] = config
            waiting += [
                each for each in config.sub_configs.values() if getattr(each, "model_type", "")
            ]
    return found


def main() -> None:
    """Write the file."""
    import transformers

    rows = []
    for kind, config in sorted(classes().items()):
        facts = _class_facts(kind, config)
        if facts:
            rows.append(f"{json.dumps(kind)}: {json.dumps(facts, separators=(',', ':'))}")
    made_by = f"scripts/config_classes.py with transformers {transformers.__version__}"
    head = f'{{"schema": 1, "made_by": {json.dumps(made_by)},\n"classes": {{\n'
    OUTPUT.write_text(head + ",\n".join(rows) + "\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
