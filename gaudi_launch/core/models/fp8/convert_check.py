"""Compare a converted shard with its source by decoded samples of both."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.models.fp8.arithmetic import (
    CHECKPOINT_MAX,
    GAUDI2_MAX,
    action,
    decode_table,
    weight_of,
)

_SAMPLES = 4096
_BLOCK = 16 << 20
# e4m3 has three bits behind the point: rounding moves a number by a sixteenth of it at most, and a
# subnormal by half of the smallest step, 2**-10, here in the source's measure
_RELATIVE, _ABSOLUTE = 2.0**-4 * 1.001, 2.0**-10 * CHECKPOINT_MAX / GAUDI2_MAX * 1.001
_Array = np.ndarray[Any, np.dtype[Any]]


def first_wrong(source: Path, target: Path) -> str:
    """Return the first tensor of ``target`` that differs from ``source``, or "".

    Numbers are compared within rounding. Of each weight, up to 4096 numbers spread over it are
    multiplied by its scales, on both sides; a scale or weight whose partner is in another shard is
    compared alone. All else must be the same bytes.
    """
    old, new = _Shard(source), _Shard(target)
    if old.names() != new.names():
        return "header"
    scales = {weight_of(name): name for name in old.names() if weight_of(name) is not None}
    for name in old.names():
        if not _same(name, old, new, scales.get(name)):
            return name
    return ""


def _same(name: str, old: _Shard, new: _Shard, scale: str | None) -> bool:
    does = action(name, old.dtype(name))
    if does == "scale":
        return bool(
            np.allclose(
                new.numbers(name),
                old.numbers(name) * CHECKPOINT_MAX / GAUDI2_MAX,
                rtol=1e-6,
                atol=0,
            )
        )
    if does != "weight":
        return all(
            one == other for one, other in zip(old.blocks(name), new.blocks(name), strict=True)
        )
    table = decode_table().astype(np.float64)
    at = np.linspace(0, max(old.size(name) - 1, 0), min(_SAMPLES, old.size(name))).astype(np.int64)
    before, after = table[old.codes(name, at)], table[new.codes(name, at)]
    factor_before, factor_after = np.ones(1), np.full(1, CHECKPOINT_MAX / GAUDI2_MAX)
    if scale is not None and old.size(scale):
        each = at % len(old.numbers(scale))
        factor_before, factor_after = old.numbers(scale)[each], new.numbers(scale)[each]
    wanted, found = before * factor_before, after * factor_after
    allowed = np.maximum(np.abs(wanted) * _RELATIVE, np.abs(factor_before) * _ABSOLUTE)
    close = np.abs(found - wanted) <= allowed
    return bool(np.all(close | (np.isnan(wanted) & np.isnan(found))))


class _Shard:
    """One safetensors file, read on demand."""

    def __init__(self, path: Path) -> None:
        self._bytes: _Array = np.memmap(path, dtype=np.uint8, mode="r")
        (length,) = struct.unpack("<Q", self._bytes[:8].tobytes())
        document = parse_json(self._bytes[8 : 8 + length].tobytes(), length)
        self._header: Mapping[str, Any] = {n: e for n, e in document.items() if n != "__metadata__"}
        self._start = 8 + length

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._header))

    def dtype(self, name: str) -> str:
        return str(self._header[name]["dtype"])

    def size(self, name: str) -> int:
        begin, end = self._header[name]["data_offsets"]
        return int(end - begin)

    def codes(self, name: str, at: _Array) -> _Array:
        found: _Array = self._bytes[self._start + self._header[name]["data_offsets"][0] + at]
        return found

    def numbers(self, name: str) -> _Array:
        """Return a scale's numbers as float64."""
        begin, end = (self._start + offset for offset in self._header[name]["data_offsets"])
        raw = self._bytes[begin:end].tobytes()
        if self.dtype(name) == "BF16":
            return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
        return np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[self.dtype(name)]).astype(np.float64)

    def blocks(self, name: str) -> Iterator[bytes]:
        begin, end = (self._start + offset for offset in self._header[name]["data_offsets"])
        for at in range(begin, end, _BLOCK):
            yield self._bytes[at : min(at + _BLOCK, end)].tobytes()


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file, as the record of a conversion stores it.

    Raises OSError.
    """
    found = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found = crc32(block, found)
    return found
