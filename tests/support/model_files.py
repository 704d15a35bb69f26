"""Files of a small DeepSeek model, as a hub has them, and the states of a hybrid."""

from __future__ import annotations

import json
import struct

import numpy as np

# what decides a profile and the code path; the weights are tiny
CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "n_routed_experts": 256,
    "max_position_embeddings": 163840,
    "vocab_size": 129280,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}

# Qwen/Qwen3-Next-80B-A3B-Instruct, config.json
NEXT = {
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}


WEIGHT = "model.layers.0.mlp.up_proj.weight"


def shard(scale: float) -> bytes:
    tensors = [
        (WEIGHT, "F8_E4M3", [16, 16], bytes(range(256))),
        (f"{WEIGHT}_scale_inv", "F32", [1, 1], np.float32(scale).tobytes()),
    ]
    header, at = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors)


SHARDS = {f"model-0000{n}-of-00002.safetensors": shard(n / 10) for n in (1, 2)}


FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "configuration_deepseek.py": b"class DeepseekV3Config: ...\n",
    "tokenizer.json": b"{}",
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {f"t{n}": name for n, name in enumerate(SHARDS)}}
    ).encode(),
    **SHARDS,
}
