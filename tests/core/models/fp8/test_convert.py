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
from zlib import crc32

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.models.fp8 import conversion_need, convert
from gaudi_launch.core.models.fp8.arithmetic import conversion_table
from gaudi_launch.core.models.fp8.conversion_need import is_converted, wants_conversion
from gaudi_launch.core.models.fp8.conversion_record import RECORD, read_record
from gaudi_launch.core.models.fp8.convert import Conversion, convert_folder, convert_shard
from tests.support.scripted_hosts import failed
from tests.support.shards import read_shard

UP = "layers.0.up_proj.weight"
CODES = bytes(range(256))
ONE_BF16, ONE_F16 = b"\x80\x3f", b"\x00\x3c"
SCALE = struct.pack("<f", 448.0 / 240.0)
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
        header[name] = {"dtype": dtype, "shape": [len(data)], "data_offsets": [at, at + len(data)]}
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


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_checkpoint_is_converted(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # tensors larger than a piece, and a scale in another shard than its weight
    monkeypatch.setattr(convert, "CHUNK", 100)
    shards = ("a.safetensors", "deep/b.safetensors")
    write(source / shards[1], {f"{UP}_scale": ("F16", ONE_F16 * 130), "norm": ("F32", b"1234")})
    out, seen, before = tmp_path / "out", list[str](), files_of(source)
    found = convert_folder(source, out, progress=seen.append)
    assert (found, sorted(seen)) == (Conversion(shards, (), ("layers.0.q_proj.weight",)), [*shards])
    assert read_shard(out / shards[0]) == {
        **WHOLE,
        UP: ("F8_E4M3", conversion_table().tobytes()),
        f"{UP}_scale_inv": ("F32", SCALE),
    }
    assert read_shard(out / shards[1]) == {
        f"{UP}_scale": ("F32", SCALE * 130),
        "norm": ("F32", b"1234"),
    }
    written = files_of(out)
    assert written[shards[0]][8:].startswith(b'{"__metadata__":{"format":"pt"},')
    # the tensors begin at a multiple of eight bytes
    assert {int.from_bytes(written[name][:8], "little") % 8 for name in shards} == {0}
    kept = {name for name in written if not name.startswith(".")}
    assert (kept, files_of(source)) == ({*shards, "config.json", "deep/notes.txt"}, before)
    entries = {
        name: {
            "size": len(before[name]),
            "mtime_ns": (source / name).stat().st_mtime_ns,
            "crc32": crc32(written[name]),
            "out_size": len(written[name]),
        }
        for name in shards
    }
    assert read_record(out) == {
        "schema": 1, "kind": "fp8-gaudi2", "complete": True, "shards": entries,
    }  # fmt: skip
    assert is_converted(out)
    (out / shards[0]).unlink()
    (out / "model.safetensors.index.json").write_text('{"weight_map": {"x": "a.safetensors"}}')
    assert not is_converted(out)


@pytest.mark.parametrize(
    ("tensors", "dtype", "weight"),
    [
        ({UP: ("F8_E4M3", CODES), f"{UP}_scale": ("I8", b"1")}, "I8", "F8_E4M3"),
        ({UP: ("BF16", b"12"), f"{UP}_scale": ("F32", b"1234")}, "F32", "BF16"),
        ({f"{UP}_scale": ("I8", b"1")}, "I8", "-"),
    ],
)
def test_scales_that_do_not_belong_to_weights(
    tmp_path: Path, tensors: Tensors, dtype: str, weight: str
) -> None:
    write(tmp_path / "m" / "a.safetensors", tensors)
    scale = {"path": str(tmp_path / "m"), "name": f"{UP}_scale", "dtype": dtype, "weight": weight}
    refusal = ("fp8.scale", ExitCode.MODEL, scale, None)
    assert failed(lambda: convert_folder(tmp_path / "m", tmp_path / "out")) == refusal


def test_a_run_that_ends_early_is_not_complete(source: Path, tmp_path: Path) -> None:
    def stop(shard: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_folder(source, tmp_path / "out", progress=stop)
    record = read_record(tmp_path / "out")
    assert (record["complete"], len(record["shards"])) == (False, 1)


def test_a_shard_that_differs_is_converted_once_more(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new" / "a.safetensors"
    wrong = [UP, "", UP, UP]
    monkeypatch.setattr(convert, "first_wrong", lambda *places: wrong.pop(0))
    convert_shard(source / "a.safetensors", target)
    mismatch = ("fp8.mismatch", ExitCode.FAILED, {"path": str(target), "name": UP}, None)
    assert failed(lambda: convert_shard(source / "a.safetensors", target)) == mismatch
    assert [*target.parent.iterdir()] == [target]


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
    monkeypatch.setattr(conversion_need, "CHUNK", 10)
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
