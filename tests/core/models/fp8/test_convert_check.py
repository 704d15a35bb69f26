"""A converted shard compared with its source."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gaudi_launch.core.models.fp8.arithmetic import conversion_table
from gaudi_launch.core.models.fp8.convert_check import first_wrong

UP, SCALE, NORM = "up_proj.weight", "up_proj.weight_scale", "norm"
FINITE = bytes(code for code in range(256) if code & 0x7F != 0x7F)
CONVERTED = conversion_table()[np.frombuffer(FINITE, np.uint8)].tobytes()
Tensors = Mapping[str, tuple[str, bytes]]


def floats(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


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


def test_other_tensors_are_a_wrong_header(tmp_path: Path) -> None:
    less = {name: AFTER[name] for name in (UP, SCALE)}
    assert compared(tmp_path, BEFORE, less) == "header"
