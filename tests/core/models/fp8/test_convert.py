"""Conversion of small checkpoints in this process: every byte, record and refusal."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.models.fp8 import convert
from gaudi_launch.core.models.fp8.conversion_record import RECORD
from gaudi_launch.core.models.fp8.convert import convert_folder, convert_shard, wants_conversion
from tests.support.scripted_hosts import failed

UP = "layers.0.up_proj.weight"
CODES = bytes(range(256))
ONE_BF16, ONE_F16 = b"\x80\x3f", b"\x00\x3c"
Tensors = Mapping[str, tuple[str, bytes]]
WHOLE: Tensors = {
    UP: ("F8_E4M3", CODES),
    f"{UP}_scale_inv": ("BF16", ONE_BF16),
    "layers.0.norm": ("BF16", b"\x12\x34"),
    "layers.0.q_proj.weight": ("BF16", b"\x56\x78"),
}
IN_RANGE: Tensors = {UP: ("F8_E4M3", bytes(0x78))}


def write(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> Path:
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, (dtype, data) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": [len(data)],
            "data_offsets": [at, at + len(data)],
        }
        at += len(data)
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    body = b"".join(data for _, data in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


@contextmanager
def threads(processes: int) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_pool", threads)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a checkpoint of two shards, one of them in a folder, with other files."""
    folder = tmp_path / "m"
    write(folder / "a.safetensors", WHOLE, {"format": "pt"})
    write(folder / "deep" / "b.safetensors", {"layers.1.norm": ("F32", b"1234")})
    (folder / "config.json").write_text("{}")
    (folder / "deep" / "notes.txt").write_text("notes")
    (folder / ".gaudi-launch.lock").write_text("x")
    (folder / ".gaudi-launch-parts").mkdir()
    (folder / ".gaudi-launch-parts" / "x").write_text("x")
    return folder


def test_a_second_run_converts_only_what_changed(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert_folder(source, out)
    a, b = "a.safetensors", "deep/b.safetensors"

    def again(**options: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        found = convert_folder(source, out, **options)
        return found.written, found.kept

    assert again() == ((), (a, b))
    assert again(force=True) == ((a, b), ())
    # another content of the same size and time, as a failing disk would leave it
    damaged = bytearray((out / a).read_bytes())
    damaged[-1] ^= 1
    (out / a).write_bytes(damaged)
    assert again() == ((a,), (b,))
    os.utime(source / b, ns=(5, 5))
    assert again() == ((b,), (a,))
    (out / b).unlink()
    assert again() == ((b,), (a,))
    part = out / "deep" / "b.safetensors.77.part"
    part.write_text("of a run that was killed")
    again()
    assert not part.exists()
    (out / RECORD).write_text('{"shards": {"a.safetensors": 1}}')
    assert again() == ((a, b), ())


def test_folders_that_cannot_be_converted(source: Path, tmp_path: Path) -> None:
    none = tmp_path / "none"
    model, usage = ExitCode.MODEL, ExitCode.USAGE
    out = tmp_path / "out"

    def refusal(one: Path, other: Path = out) -> tuple[object, ...]:
        return failed(lambda: convert_folder(one, other))

    assert refusal(none) == ("fp8.no_folder", model, {"path": str(none)}, None)
    for inside in (source, source / "out", source.parent):
        places = {"source": str(source), "out": str(inside)}
        assert refusal(source, inside) == ("fp8.same_folder", usage, places, None)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refusal(empty) == ("fp8.no_weights", model, {"path": str(empty)}, None)
    weights = {f"x{number}": f"{number}.safetensors" for number in range(7)}
    index = json.dumps({"weight_map": weights})
    (empty / "model.safetensors.index.json").write_text(index)
    files = ", ".join(f"{number}.safetensors" for number in range(5))
    missing = {"path": str(empty), "files": files}
    assert refusal(empty) == ("fp8.missing", model, missing, None)
    plain = tmp_path / "plain"
    write(plain / "a.safetensors", IN_RANGE)
    nothing = ("fp8.nothing_to_convert", model, {"path": str(plain)}, None)
    assert refusal(plain) == nothing
    assert not out.exists()
    # one that was converted before
    convert_folder(source, out)
    again = {"path": str(out)}
    assert refusal(out, tmp_path / "more") == ("fp8.nothing_to_convert", model, again, None)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data[:4], "shorter than its header"),
        (lambda data: data[:-1], "{less} bytes, not {size}"),
        (lambda data: data + b"x", "{more} bytes, not {size}"),
    ],
)
def test_damaged_shards(tmp_path: Path, change: Callable[[bytes], bytes], why: str) -> None:
    path = write(tmp_path / "m" / "a.safetensors", WHOLE)
    size = path.stat().st_size
    path.write_bytes(change(path.read_bytes()))
    values = {"path": str(path), "why": why.format(size=size, less=size - 1, more=size + 1)}
    damaged = ("fp8.bad_shard", ExitCode.MODEL, values, None)
    assert failed(lambda: wants_conversion(tmp_path / "m")) == damaged
    assert failed(lambda: convert_shard(path, tmp_path / "x")) == damaged


def test_the_room_on_the_disk(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [path.stat().st_size for path in source.rglob("*.safetensors")]
    needed = int(sum(sizes) * 1.01)
    asked: list[Path] = []
    free = [needed - 1, needed, 0, 0]

    def usage(path: Path) -> Any:
        asked.append(path)
        return SimpleNamespace(free=free.pop(0))

    monkeypatch.setattr(shutil, "disk_usage", usage)
    out = tmp_path / "far" / "out"
    values = {"path": str(out), "free": "0.0", "needed": "0.0"}
    assert failed(lambda: convert_folder(source, out)) == (
        "fp8.disk", ExitCode.MACHINE, values, None,
    )  # fmt: skip
    assert asked == [tmp_path]
    convert_folder(source, out)
    # what is converted already needs no room
    assert convert_folder(source, out).written == ()
    with (source / "x").open("wb") as large:
        large.truncate(2_345_000_000)
    values = {"path": str(out), "free": "0.0", "needed": "2.4"}
    assert failed(lambda: convert._check_disk(source, out, ["x"])) == (
        "fp8.disk", ExitCode.MACHINE, values, None,
    )  # fmt: skip


def test_weights_beyond_the_range_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not wants_conversion(tmp_path)
    write(tmp_path / "a.safetensors", IN_RANGE)
    assert not wants_conversion(tmp_path)
    monkeypatch.setattr(convert, "_CHUNK", 10)
    # the last byte of a later shard
    late = {"norm": ("BF16", b"\x7e\x7e"), UP: ("F8_E4M3", bytes(25) + b"\x78")}
    write(tmp_path / "deep" / "b.safetensors", late)
    assert wants_conversion(tmp_path)
    (tmp_path / RECORD).write_text('{"complete": true}')
    assert not wants_conversion(tmp_path)


def test_eight_tensors_are_enough(tmp_path: Path) -> None:
    few = {f"{number}_proj.weight": ("F8_E4M3", b"\x01") for number in range(5)}
    write(tmp_path / "a.safetensors", few)
    more = {f"{number}_proj.weight": ("F8_E4M3", b"\x01") for number in range(3)}
    beyond = {"x_proj.weight": ("F8_E4M3", b"\x7e")}
    write(tmp_path / "b.safetensors", {**more, **beyond})
    write(tmp_path / "c.safetensors", beyond)
    assert not wants_conversion(tmp_path)
    write(tmp_path / "b.safetensors", {**dict([*more.items()][1:]), **beyond})
    assert wants_conversion(tmp_path)
