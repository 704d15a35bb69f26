"""TGI's warm-up shapes: the cases that were run on its own bucket code."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.extensions.tgi.tgi_buckets import PAGED, POWERS, Images, TgiShapes, tgi_shapes
from gaudi_launch.extensions.tgi.tokens import Tokens

EIGHT_B = Tokens(1024, 2048, 32, 2048)


@pytest.mark.parametrize(
    ("limits", "kv_blocks", "prefill", "decode", "blocks"),
    [
        (Tokens(512, 1024, 4, 2048), None, 12, 6, [128, 160]),
        (EIGHT_B, None, 21, 30, [128, 256, 384, 512, 640]),
        (
            Tokens(1024, 2048, 256, 4096),
            None,
            31,
            125,
            [*range(128, 1025, 128), 1152, 1536, 1920, 2560, 3328, 4224],
        ),
        (Tokens(1000, 1500, 6, 6000), None, 32, 8, [128, 200]),
        (Tokens(128, 256, 1, 128), None, 1, 2, [128, 130]),
        (
            Tokens(32000, 32768, 16, 32000),
            None,
            60,
            70,
            [*range(128, 1025, 128), 1152, 1536, 1920, 2560, 3328, 4224],
        ),
        (EIGHT_B, 400, 21, 24, [128, 256, 384, 400]),
    ],
)
def test_paged(
    limits: Tokens, kv_blocks: int | None, prefill: int, decode: int, blocks: list[int]
) -> None:
    shapes = tgi_shapes(PAGED, limits, {}, kv_blocks=kv_blocks)
    assert (len(shapes.prefill), len(shapes.decode), shapes.runs) == (prefill, decode, 3)
    assert sorted({k for _, k in shapes.decode}) == blocks


def test_vision_model_warms_only_decode() -> None:
    shapes = tgi_shapes(PAGED, Tokens(4096, 8192, 4, 16384), {}, images="prompt")
    assert shapes == TgiShapes([], [[b, k] for b in (4, 2, 1) for k in (128, 256, 384)], 3)


@pytest.mark.parametrize(
    ("limits", "env", "images", "prefill_bs", "lengths", "decode"),
    [
        (EIGHT_B, {}, "", [1, 2], [256, 512, 768, 1024], [1, 2, 4, 8, 16, 32]),
        (
            Tokens(1024, 2048, 256, 4096),
            {"PAD_SEQUENCE_TO_MULTIPLE_OF": "64"},
            "",
            [1, 2, 4],
            list(range(64, 1025, 64)),
            [2**i for i in range(9)],
        ),
        (
            Tokens(4096, 8192, 4, 16384),
            {},
            "prompt",
            [1, 2, 4],
            [2048, 2176, 2432, 2944, 3968, 4096],
            [1, 2, 4],
        ),
    ],
)
def test_powers(
    limits: Tokens,
    env: dict[str, str],
    images: Images,
    prefill_bs: list[int],
    lengths: list[int],
    decode: list[int],
) -> None:
    shapes = tgi_shapes(POWERS, limits, env, images=images)
    assert shapes == TgiShapes(
        [[b, s] for b in prefill_bs for s in lengths], [[b] for b in decode], 1
    )


@pytest.mark.parametrize(
    ("algorithm", "env"), [("2.0.6", {}), (PAGED, {"VLLM_EXPONENTIAL_BUCKETING": "false"})]
)
def test_unknown(algorithm: str, env: dict[str, str]) -> None:
    with pytest.raises(LaunchError, match=algorithm.replace(".", r"\.")):
        tgi_shapes(algorithm, EIGHT_B, env)
