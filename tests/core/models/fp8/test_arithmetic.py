"""All 256 codes against ml_dtypes, which shares no code with ours."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from gaudi_launch.core.models.fp8 import arithmetic

CODES = np.arange(256, dtype=np.uint8)


def test_every_code_decodes_to_its_value() -> None:
    np.testing.assert_array_equal(
        arithmetic.decode_table(), CODES.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    )


def test_every_code_converts_as_float_arithmetic_does() -> None:
    scaled = (
        CODES.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * np.float32(240) / np.float32(448)
    )
    np.testing.assert_array_equal(
        arithmetic.conversion_table(), scaled.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    )


def test_nothing_converted_is_beyond_gaudi2() -> None:
    assert arithmetic.is_beyond_gaudi2(CODES)
    assert not arithmetic.is_beyond_gaudi2(arithmetic.conversion_table())
    assert not arithmetic.is_beyond_gaudi2(np.array([0x77, 0xF7, 0x7F, 0xFF], np.uint8))
    assert arithmetic.is_beyond_gaudi2(np.array([0xF8], np.uint8))


def test_scales_become_float32() -> None:
    values = np.array([1.0, 0.5, -3.0], np.float32)
    want = (values * np.float32(448) / np.float32(240)).tobytes()
    assert arithmetic.convert_scale(values.tobytes(), "F32") == want
    assert arithmetic.convert_scale(values.astype(ml_dtypes.bfloat16).tobytes(), "BF16") == want
    assert arithmetic.convert_scale(values.astype(np.float16).tobytes(), "F16") == want


@pytest.mark.parametrize(
    ("name", "dtype", "want"),
    [
        ("model.layers.0.mlp.up_proj.weight", "F8_E4M3", "weight"),
        ("model.layers.0.mlp.up_proj.weight", "BF16", "note"),
        ("model.layers.0.mlp.up_proj.weight_scale_inv", "F32", "scale"),
        ("model.layers.0.mlp.up_proj.input_scale", "BF16", "scale"),
        ("model.embed_tokens.weight", "BF16", "copy"),
        ("model.layers.0.mlp.up_proj.bias", "BF16", "note"),
    ],
)
def test_action(name: str, dtype: str, want: str) -> None:
    assert arithmetic.action(name, dtype) == want
