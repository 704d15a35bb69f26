"""Arithmetic of 8-bit floats for Gaudi2, whose e4m3 ends at 240, not at 448.

Rules: HabanaAI/vllm-fork@deepseek_r1:scripts/convert_for_g2.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

CHECKPOINT_MAX = 448.0
GAUDI2_MAX = 240.0
_LARGEST_GAUDI2_CODE = 0x77
_NAN_CODE = 0x7F
SCALE_DTYPES = ("F32", "BF16", "F16")
_SCALES = ("weight_scale", "weight_scale_inv", "input_scale", "input_scale_inv")


def decode_table() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the values of the 256 float8_e4m3fn codes, float32 of shape (256,)."""
    codes = np.arange(128)
    exponent, mantissa = codes >> 3, codes & 7
    values = np.where(
        exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0)
    )
    values[_NAN_CODE] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


def conversion_table() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the code of value x 240/448 for each of the 256 codes: uint8 (256,).

    Values are rounded to nearest (ties to even).
    """
    values = decode_table()[:_NAN_CODE].astype(np.float64)
    scaled = values * GAUDI2_MAX / CHECKPOINT_MAX
    above = np.minimum(np.searchsorted(values, scaled), _NAN_CODE - 1)
    below = np.maximum(above - 1, 0)
    to_above, to_below = values[above] - scaled, scaled - values[below]
    takes_above = (to_above < to_below) | ((to_above == to_below) & (above % 2 == 0))
    positive = np.append(np.where(takes_above, above, below), _NAN_CODE)
    return np.concatenate([positive, positive | 0x80]).astype(np.uint8)


def is_beyond_gaudi2(codes: np.ndarray[Any, np.dtype[np.uint8]]) -> bool:
    """Return True if any code represents a number larger than 240."""
    size = codes & 0x7F
    return bool(((size > _LARGEST_GAUDI2_CODE) & (size != _NAN_CODE)).any())


def action(name: str, dtype: str) -> str:
    """Return the action of a conversion on a tensor.

    ``weight``, ``scale``, ``copy``, or ``note``: a projection that is not an 8-bit float and is
    copied.
    """
    if "proj" not in name:
        return "copy"
    if name.endswith("weight"):
        return "weight" if dtype == "F8_E4M3" else "note"
    if name.endswith(_SCALES):
        return "scale" if dtype in SCALE_DTYPES else "note"
    return "note"


def weight_of(name: str) -> str | None:
    """Return the weight that a projection's scale belongs to.

    Return None for other names.
    """
    for suffix in _SCALES:
        if "proj" in name and name.endswith(f".{suffix}"):
            return f"{name.removesuffix(suffix)}weight"
    return None


def convert_scale(raw: bytes, dtype: str) -> bytes:
    """Return a scale of dtype F32, BF16 or F16 as float32 x 448/240, little-endian."""
    if dtype == "BF16":
        values = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    else:
        values = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[dtype]).astype("<f4")
    scaled = values * np.float32(CHECKPOINT_MAX) / np.float32(GAUDI2_MAX)
    data: bytes = scaled.astype("<f4").tobytes()
    return data
