"""Every published number about memory that our sources have, reproduced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.models import sizing
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import GIB, MemoryRules

MIB = 1 << 20
README = "HabanaAI/vllm-fork@aice/v1.21.0:README_GAUDI.md, log block 3 (Llama-3.1-8B, one Gaudi2)"
README_1_22 = (
    "HabanaAI/vllm-fork@aice/v1.22.0:README_GAUDI.md, log block 3 (num_blocks of the last decode "
    "bucket)"
)
PULL_345 = "HabanaAI/vllm-fork pull 345"
AUTOCALC = "vllm-project/vllm-gaudi@main:.cd/server/settings_vllm.csv"
TABLES = "tables of KV bytes: vllm/worker/cache_engine.py of the fork, worked by hand"
FAKE = "recorded run of the fork's fake-HPU mode"


def shape(layers: int, kv_heads: int, head_dim: int = 128, **more: int) -> Model:
    return Model("m", "m", layers=layers, kv_heads=kv_heads, head_dim=head_dim, **more)  # type: ignore[arg-type]


LLAMA_7B, LLAMA_13B, LLAMA_70B = shape(32, 32), shape(40, 40), shape(80, 8)
LLAMA_8B = shape(32, 8, parameters=8_030_261_248, hidden_size=4096, intermediate_size=14336)
LLAMA_405B = shape(126, 8)
QWEN_7B, QWEN_30B, R1 = shape(28, 4), shape(48, 4), Model("m", "m", layers=61, mla_rank=576)


def kv(model: Model, cards: int = 1, each: int = 2) -> float:
    return sizing.kv_bytes_per_token(model, cards, each) or 0


def card(
    total_gib: float, model: Model, tokens: int, utilization: float, reserved: float
) -> sizing.Split:
    """A card from its size alone: weights and profiling run by our own estimate, nothing
    measured."""
    used = (sizing.weight_bytes(model) or 0) + sizing.activation_bytes(model, tokens)
    return sizing.split(total_gib * GIB - used, utilization, reserved)


README_SPLIT = card(94.62, LLAMA_8B, 4 * 1024, 0.5, 0.4)
# Gaudi3 shows about 126.5 GiB (vllm-project/vllm-gaudi issue 1736); batch 4 x 4096 tokens, 0.9 and
# 0.1 by default
GAUDI3 = card(126.5, LLAMA_8B, 4 * 4096, 0.9, 0.1)
BLOCK_8B = sizing.block_bytes(LLAMA_8B) or 0

# bytes per token, MiB a block, GiB of 4096 tokens
ROWS = [
    ("Llama-2-7B", LLAMA_7B, 524288, 64, 2.0),
    ("Llama-2-13B", LLAMA_13B, 819200, 100, 3.125),
    ("70B", LLAMA_70B, 327680, 40, 1.25),
    ("Llama-3-8B", LLAMA_8B, 131072, 16, 0.5),
    ("405B", LLAMA_405B, 516096, 63, 1.97),
]
PUBLISHED = [
    # what, ours, published, source
    ("weights of 8B", (sizing.weight_bytes(LLAMA_8B) or 0) / GIB, 14.97, README),
    ("profiling run of 8B, MiB", sizing.activation_bytes(LLAMA_8B, 4096) / MIB, 504, README),
    ("free", README_SPLIT.free / GIB, 79.16, README),
    ("usable", README_SPLIT.usable / GIB, 39.58, README),
    ("reserved for graphs", README_SPLIT.graphs / GIB, 15.83, README),
    ("reserved for KV", README_SPLIT.kv / GIB, 23.75, README),
    ("blocks", sizing.count_blocks(README_SPLIT.kv, BLOCK_8B, MemoryRules()), 1519, README),
    ("KV cache made", 1519 * BLOCK_8B / GIB, 23.73, README),
    ("blocks, Gaudi3", sizing.count_blocks(GAUDI3.kv, BLOCK_8B, MemoryRules()), 5746, README_1_22),
    ("free after the cache", (GAUDI3.free - GAUDI3.kv) / GIB, 21.06, README_1_22),
    ("CPU blocks of 4 GiB", 4 * GIB // BLOCK_8B, 256, PULL_345),
    ("KV cache of 3184 blocks", 3184 * BLOCK_8B / GIB, 49.75, PULL_345),
    ("concurrency", sizing.concurrency(16384, 512), 4096.0, FAKE + " 1.21"),
    ("concurrency", sizing.concurrency(512, 512), 128.0, FAKE + " 1.22 and deepseek_r1"),
    ("concurrency", sizing.concurrency(360, 4352), 10.59,
     "vllm-project/vllm-gaudi: troubleshooting.md"),
    ("Llama-3.1-8B", kv(LLAMA_8B), 131072, TABLES),
    ("Llama-3.1-70B on 4", kv(LLAMA_70B, 4), 81920, TABLES),
    ("Llama-3.1-405B on 8", kv(LLAMA_405B, 8), 64512, TABLES),
    ("Qwen2.5-7B on 4", kv(QWEN_7B, 4), 14336, TABLES),
    ("Qwen3-30B-A3B on 4", kv(QWEN_30B, 4), 24576, TABLES),
    ("Qwen3-30B-A3B on 8", kv(QWEN_30B, 8), 24576, TABLES),
    ("DeepSeek-R1 bf16, any n", kv(R1, 8), 70272, TABLES),
    ("DeepSeek-R1 fp8_inc, any n", kv(R1, 1, 1), 35136, TABLES),
    ("TGI, 8B, 80 GiB free", 80 * GIB * 0.72 // BLOCK_8B, 3686, "TGI@db931fcf warm-up, worked"),
    ("TGI, 70B on 8, 78.5 GiB free", 78.5 * GIB * 0.72 // (5 * MIB), 11575,
     "TGI@db931fcf warm-up, worked"),
    *((f"{name} token", kv(model), token, TABLES) for name, model, token, _, _ in ROWS),
    *((f"{name} block", kv(model) * 128 / MIB, block, TABLES) for name, model, _, block, _ in ROWS),
    *((f"{name} sequence", kv(model) * 4096 / GIB, sequence, TABLES) for name, model, _, _,
      sequence in ROWS),
    # MODEL_MEM in GiB of MODEL_MEM_FROM_CONFIG bytes
    *(
        (name, (sizing.weight_bytes(Model("m", "m", parameters=size // 2)) or 0) / GIB, gib,
         AUTOCALC)
        for name, size, gib in (
            ("Llama-3.1-8B", 16060522496, 14.95752716),
            ("Llama-3.1-70B", 141107000000, 131.4165192),
            ("Mixtral-8x7B", 93405585408, 86.99073029),
            ("Llama-3.1-405B", 811707000000, 755.9608459),
            ("Qwen2.5-32B", 65527752704, 61.02747536),
            ("Qwen3-30B-A3B", 61064245248, 56.87),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "ours", "published", "source"), PUBLISHED, ids=lambda value: str(value)[:40]
)
def test_published_numbers_come_out_within_five_per_cent(
    what: str, ours: float, published: float, source: str
) -> None:
    assert ours == pytest.approx(published, rel=0.05), f"{what}: {source}"


# 30.15 GiB: HabanaAI/vllm-fork issue 776; 94.62: README, a little less with older software; 126.5:
# vllm-project/vllm-gaudi issue 1736
@pytest.mark.parametrize(
    ("product", "shown"),
    [("gaudi1", 30.15), ("gaudi2", 94.62), ("gaudi2e", 94.62), ("gaudi3", 126.5)],
)
def test_what_a_process_can_allocate_is_what_engines_were_seen_to_show(
    product: str, shown: float
) -> None:
    usable = accelerators()[product].memory_usable_mib or 0
    assert 0.988 * shown <= usable / 1024 <= shown


# the arithmetic cells of the Inferentia table: total GB, cores of 16 GB, accelerators of two cores
@pytest.mark.parametrize(
    ("billions", "total", "cores", "accelerators"), [(70, 140, 9, 5), (13, 26, 2, 1), (7, 14, 1, 1)]
)
def test_inferentia_table(billions: int, total: int, cores: int, accelerators: int) -> None:
    found = sizing.units(billions, 2, 16)
    assert (billions * 2, found, -(-found // 2)) == (total, cores, accelerators)


@pytest.mark.parametrize(
    ("billions", "devices"),
    [
        (7, (1, 1, 1, 1, 1)),
        (8, (1, 1, 1, 1, 1)),
        (13, (1, 1, 1, 2, 1)),
        (70, (5, 2, 2, 9, 5)),
        (405, (26, 9, 7, 51, 26)),
    ],
)
def test_weights_only_table(billions: int, devices: tuple[int, ...]) -> None:
    assert tuple(sizing.units(billions, 2, unit) for unit in (32, 96, 128, 16, 32)) == devices


UNWEIGHED: dict[str, Any] = {
    "weight_bytes": None,
    "layers": 1,
    "hidden_size": 4,
    "vocab_size": 3,
    "heads": 1,
    "head_dim": 4,
    "tie_word_embeddings": False,
}
STORED = Model("m", "m", weight_bytes=800, parameters=100, dtype="bfloat16", unloaded_bytes=80)


@pytest.mark.parametrize(
    ("changes", "dtype", "found"),
    [
        # as on disk, without what is not loaded
        ({}, "bfloat16", 720.0),
        ({"quantization": "fp8"}, "fp8", 720.0),
        # another type: a tenth of the parameters is not loaded either
        ({"quantization": "fp8"}, "bfloat16", 180.0),
        ({}, "fp8", 90.0),
        ({}, "float32", 360.0),
        # without parameters: by the bytes of the stored type
        ({"parameters": None}, "fp8", 360.0),
        ({"parameters": None, "quantization": "mxfp4"}, "bfloat16", 720 / (4.25 / 8) * 2),
        ({"parameters": None, "quantization": "odd"}, "bfloat16", None),
        # a type that is only read is as large as on disk, or not known
        ({"quantization": "compressed-tensors"}, "compressed-tensors", 720.0),
        ({}, "compressed-tensors", None),
        ({"weight_bytes": None, "parameters": None}, "bfloat16", None),
        ({"weight_bytes": None}, "bfloat16", 200.0),
        # a quantised checkpoint keeps 2 x 4 x 3 parameters of embedding and head in 16 bits
        ({**UNWEIGHED, "quantization": "fp8"}, "fp8", 124.0),
        ({**UNWEIGHED, "quantization": "awq"}, "awq", 76 * 0.525 + 48),
        ({**UNWEIGHED, "quantization": "awq", "tie_word_embeddings": True}, "awq", 88 * 0.525 + 24),
        ({**UNWEIGHED}, "fp8", 100.0),
    ],
)
def test_bytes_of_weights(changes: dict[str, Any], dtype: str, found: float | None) -> None:
    size = sizing.weight_bytes(replace(STORED, **changes), dtype)
    assert size == (None if found is None else pytest.approx(found))
    each = sizing.weight_bytes_per_card(replace(STORED, **changes), 4, dtype)
    assert each == (None if found is None else pytest.approx(found / 4))


def test_bytes_of_a_number_in_the_cache() -> None:
    assert dict(sizing.KV_BYTES) == {
        "auto": 2, "bfloat16": 2, "float16": 2, "float32": 4, "fp8_inc": 1, "fp8": 1,
        "fp8_e4m3fn": 1,
    }  # fmt: skip
