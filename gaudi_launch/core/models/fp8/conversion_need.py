"""Report whether fp8 weights need a conversion for Gaudi2."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.models.fp8.arithmetic import action, is_beyond_gaudi2
from gaudi_launch.core.models.fp8.conversion_record import is_recorded
from gaudi_launch.core.models.weights import HeaderError, read_header, read_weights

CHUNK = 16 << 20
_TENSORS_TO_LOOK_AT = 8


def is_converted(folder: Path) -> bool:
    """Return True if this folder is a complete conversion by this program."""
    return is_recorded(folder) and not read_weights(folder)["files_missing"]


def wants_conversion(folder: Path) -> bool:
    """Return True if a folder contains fp8 weights beyond Gaudi2's range.

    A few tensors suffice: fp8 scales are made so that the largest weight of each block (or tensor,
    or channel) becomes the largest code, 448. Raises LaunchError (MODEL) for a damaged shard.
    """
    if is_recorded(folder):
        return False
    looked = 0
    for shard in sorted(folder.rglob("*.safetensors")):
        header = header_of(shard)
        weights = [
            name for name, entry in tensors_of(header) if action(name, entry["dtype"]) == "weight"
        ]
        few = {name: header[name] for name in weights[: _TENSORS_TO_LOOK_AT - looked]}
        if few and is_beyond(shard, header, few):
            return True
        looked += len(few)
        if looked >= _TENSORS_TO_LOOK_AT:
            break
    return False


def tensors_of(header: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the tensors of a shard's header, in the order of their bytes."""
    found = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
    return sorted(found, key=lambda item: item[1]["data_offsets"][0])


def header_of(path: Path) -> Mapping[str, Any]:
    """Return the header of a complete shard. Raises LaunchError (MODEL)."""
    try:
        header, length = read_header(path)
    except HeaderError as error:
        raise LaunchError("fp8.bad_shard", ExitCode.MODEL, path=str(path), why=str(error)) from None
    if (size := path.stat().st_size) != length:
        raise LaunchError(
            "fp8.bad_shard", ExitCode.MODEL, path=str(path), why=f"{size} bytes, not {length}"
        )
    return header


def is_beyond(path: Path, header: Mapping[str, Any], only: Mapping[str, Any] | None = None) -> bool:
    """Return True if a weight of a shard is beyond the range of Gaudi2."""
    start = path.stat().st_size - max(
        (entry["data_offsets"][1] for _, entry in tensors_of(header)), default=0
    )
    with path.open("rb") as file:
        for name, entry in tensors_of(only or header):
            if action(name, entry["dtype"]) != "weight":
                continue
            begin, end = entry["data_offsets"]
            file.seek(start + begin)
            for at in range(begin, end, CHUNK):
                if is_beyond_gaudi2(np.frombuffer(file.read(min(CHUNK, end - at)), np.uint8)):
                    return True
    return False
