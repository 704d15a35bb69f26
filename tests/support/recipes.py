"""A recipe cache key, its buckets, and a complete fill."""

from __future__ import annotations

from pathlib import Path

from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.recipes import keeper
from gaudi_launch.core.recipes.key import KeyParts

PARTS = KeyParts(
    product="gaudi2",
    stepping="GAUDI2",
    driver="1.21",
    software="1.21",
    engine="vllm-fork@1.21",
    engine_commit="277a33cd9",
    extension_commit="8afd253",
    model="Qwen2-72B-Instruct",
    model_config="0123456789abcdef",
    tensor_parallel=4,
    dtype="bfloat16",
    quantization="",
    mode="lazy",
    variables={"VLLM_FP32_SOFTMAX": "false", "VLLM_CONTIGUOUS_PA": "true", "--block-size": "128"},
)


BUCKETS = Buckets([[1, 128, 0], [1, 256, 0]], [[1, 1, 128], [2, 1, 128]])


def fill(
    root: Path, parts: KeyParts = PARTS, buckets: Buckets = BUCKETS, num_blocks: int | None = 900
) -> Path:
    """Fill a cache as a launch does, with four recipes; return the engine's folder."""
    with keeper.opened(root, parts, buckets, num_blocks) as session:
        for number in range(4):
            (session.folder / f"recipe_{number}.recipe").write_bytes(
                bytes([number + 1]) * (number + 1) * 100
            )
        session.finish(12.5, buckets, num_blocks)
        return session.folder
