"""Write and read small safetensors files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any


def read_shard(path: Path) -> dict[str, tuple[str, bytes]]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    body = data[8 + length :]
    return {
        name: (e["dtype"], body[slice(*e["data_offsets"])])
        for name, e in json.loads(data[8 : 8 + length]).items()
        if name != "__metadata__"
    }


def shard(path: Path, tensors: dict[str, tuple[str, list[int], int]], cut: int = 0) -> int:
    """Write a safetensors file of zeros; ``tensors`` are dtype, shape and bytes.

    Returns its size.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    whole = struct.pack("<Q", len(text)) + text + b"\0" * end
    path.write_bytes(whole[: len(whole) - cut])
    return len(whole) - cut


def index(folder: Path, *names: str) -> None:
    weights = {f"layer{number}": name for number, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
