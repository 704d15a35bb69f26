"""A converted shard compared with its source."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from gaudi_launch.models.fp8 import convert_check
from gaudi_launch.models.fp8.arithmetic import conversion_table
from gaudi_launch.models.fp8.convert_check import checksum, first_wrong

UP, SCALE, NORM = "up_proj.weight", "up_proj.weight_scale", "norm"
FINITE = bytes(code for code in range(256) if code & 0x7F != 0x7F)
CONVERTED = conversion_table()[np.frombuffer(FINITE, np.uint8)].tobytes()
Tensors = Mapping[str, tuple[str, bytes]]


def floats(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


def bf16(*numbers: float) -> bytes:
    return (np.array(numbers, "<f4").view("<u4") >> 16).astype("<u2").tobytes()


BEFORE: Tensors = {
    UP: ("F8_E4M3", FINITE),
    SCALE: ("F32", floats(0.5, 2.0)),
    NORM: ("BF16", b"1234"),
}
AFTER: Tensors = {
    UP: ("F8_E4M3", CONVERTED),
    SCALE: ("F32", floats(0.5 * 448 / 240, 2.0 * 448 / 240)),
    NORM: ("BF16", b"1234"),
}


def write(path: Path, tensors: Tensors) -> Path:
    header: dict[str, Any] = {"__metadata__": {"a": "b"}}
    at = 0
    for name, (dtype, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [1], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    body = b"".join(data for _, data in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def compared(folder: Path, before: Tensors, after: Tensors) -> str:
    return first_wrong(write(folder / "before", before), write(folder / "after", after))


def changed(tensors: Tensors, name: str, at: int, code: int) -> Tensors:
    dtype, data = tensors[name]
    return {**tensors, name: (dtype, data[:at] + bytes([code]) + data[at + 1 :])}


def test_a_conversion_that_is_right(tmp_path: Path) -> None:
    assert compared(tmp_path, BEFORE, AFTER) == ""
    # its order does not matter
    assert compared(tmp_path, BEFORE, dict([*AFTER.items()][::-1])) == ""


def test_other_tensors_are_a_wrong_header(tmp_path: Path) -> None:
    less = {name: AFTER[name] for name in (UP, SCALE)}
    assert compared(tmp_path, BEFORE, less) == "header"


@pytest.mark.parametrize(("name", "named"), [(UP, UP), (SCALE, UP), (NORM, NORM)])
def test_the_tensor_that_differs_is_named(tmp_path: Path, name: str, named: str) -> None:
    """A scale that is far off is seen in its weight first."""
    data = AFTER[name][1]
    other = changed(AFTER, name, len(data) - 1, data[-1] ^ 0x40)
    assert compared(tmp_path, BEFORE, other) == named


def test_a_number_may_differ_by_its_rounding(tmp_path: Path) -> None:
    # the code of 1.0 becomes that of 0.5357; one step is an eighth of it or less
    one = FINITE.index(0x38)
    right = AFTER[UP][1][one]
    assert compared(tmp_path, BEFORE, changed(AFTER, UP, one, right + 1)) == UP
    assert compared(tmp_path, BEFORE, changed(AFTER, UP, one, right | 0x80)) == UP
    # the smallest number, rounded down or up by half a step
    small = FINITE.index(0x01)
    assert compared(tmp_path, BEFORE, changed(AFTER, UP, small, 0x01)) == ""
    assert compared(tmp_path, BEFORE, changed(AFTER, UP, small, 0x02)) == UP


def test_a_scale_may_differ_by_a_millionth(tmp_path: Path) -> None:
    for factor, wrong in ((1 + 5e-7, ""), (1 - 5e-6, SCALE)):
        scales = floats(0.5 * 448 / 240 * factor, 2.0 * 448 / 240)
        assert compared(tmp_path, BEFORE, {**AFTER, SCALE: ("F32", scales)}) == wrong


@pytest.mark.parametrize(
    ("dtype", "data"),
    [("BF16", bf16(0.5, 2.0)), ("F16", np.array([0.5, 2.0], "<f2").tobytes())],
)
def test_scales_of_half_precision(tmp_path: Path, dtype: str, data: bytes) -> None:
    assert compared(tmp_path, {**BEFORE, SCALE: (dtype, data)}, AFTER) == ""


def test_weights_without_their_scales_are_compared_alone(tmp_path: Path) -> None:
    before, after = {UP: BEFORE[UP]}, {UP: AFTER[UP]}
    assert compared(tmp_path, before, after) == ""
    assert compared(tmp_path, before, before) == UP
    empty = {SCALE: ("F32", b"")}
    assert compared(tmp_path, {**before, **empty}, {**after, **empty}) == ""


def test_what_is_not_a_number_stays_so(tmp_path: Path) -> None:
    nan = {UP: ("F8_E4M3", b"\x7f\xff")}
    assert compared(tmp_path, nan, nan) == ""
    assert compared(tmp_path, nan, {UP: ("F8_E4M3", b"\x7f\x00")}) == UP


def test_a_tensor_without_numbers(tmp_path: Path) -> None:
    none = {UP: ("F8_E4M3", b""), NORM: ("F32", b"1234")}
    assert compared(tmp_path, none, none) == ""


def test_a_large_weight_is_sampled_to_its_ends(tmp_path: Path) -> None:
    size = 3 * 4096
    before = {UP: ("F8_E4M3", b"\x38" * size)}
    after = {UP: ("F8_E4M3", bytes([conversion_table()[0x38]]) * size)}
    assert compared(tmp_path, before, after) == ""
    for at in (0, size - 1):
        assert compared(tmp_path, before, changed(after, UP, at, 0)) == UP
    # between two samples
    assert compared(tmp_path, before, changed(after, UP, 1, 0)) == ""


def test_copies_are_compared_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_check, "_BLOCK", 3)
    copy = {NORM: ("BF16", b"12345678")}
    assert compared(tmp_path, copy, copy) == ""
    for at in range(8):
        assert compared(tmp_path, copy, changed(copy, NORM, at, 0)) == NORM
    path = tmp_path / "x"
    path.write_bytes(b"12345678")
    assert checksum(path) == crc32(b"12345678")
