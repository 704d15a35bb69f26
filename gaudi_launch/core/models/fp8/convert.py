"""Convert an fp8 checkpoint for Gaudi2, shard by shard.

A run that was killed resumes where it stopped.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.interrupt import TURN_SECONDS, check, deferred
from gaudi_launch.core.models.folder_lock import hold
from gaudi_launch.core.models.fp8.arithmetic import (
    SCALE_DTYPES,
    action,
    conversion_table,
    convert_scale,
    weight_of,
)
from gaudi_launch.core.models.fp8.conversion_need import CHUNK, header_of, is_beyond, tensors_of
from gaudi_launch.core.models.fp8.conversion_record import RECORD, is_recorded, read_record
from gaudi_launch.core.models.fp8.convert_check import checksum, first_wrong
from gaudi_launch.core.models.weights import read_weights

_TRIES = 2
_WATCH_SECONDS = 0.5


@dataclass(frozen=True)
class Conversion:
    """The result of a run: shards written, shards kept, projections copied unchanged."""

    written: tuple[str, ...]
    kept: tuple[str, ...]
    copied_projections: tuple[str, ...]


def convert_folder(
    source: Path,
    out: Path,
    processes: int = 1,
    force: bool = False,
    progress: Callable[[str], None] = lambda shard: None,
) -> Conversion:
    """Write the Gaudi2 form of ``source`` to ``out``.

    Raises LaunchError (MODEL, USAGE, MACHINE; FAILED when a result is not what its source says, or
    another process converts to the same folder).

    ``force`` converts every shard again. ``out`` is marked complete only when every shard and file
    is in it.
    """
    # neither folder may be in the other
    if not source.is_dir():
        raise LaunchError("fp8.no_folder", ExitCode.MODEL, path=str(source))
    inside, outside = source.resolve(), out.resolve()
    if inside == outside or inside in outside.parents or outside in inside.parents:
        raise LaunchError("fp8.same_folder", ExitCode.USAGE, source=str(source), out=str(out))
    shards = sorted(str(path.relative_to(source)) for path in source.rglob("*.safetensors"))
    missing = read_weights(source)["files_missing"]
    if missing:
        raise LaunchError(
            "fp8.missing", ExitCode.MODEL, path=str(source), files=", ".join(missing[:5])
        )
    if not shards:
        raise LaunchError("fp8.no_weights", ExitCode.MODEL, path=str(source))
    headers = {shard: header_of(source / shard) for shard in shards}
    _check_scales(source, headers)
    beyond = any(is_beyond(source / shard, headers[shard]) for shard in shards)
    if is_recorded(source) or not beyond:
        raise LaunchError("fp8.nothing_to_convert", ExitCode.MODEL, path=str(source))
    done: dict[str, Any] = {} if force else dict(read_record(out).get("shards", {}))
    likely = [shard for shard in shards if _is_done(source / shard, out / shard, done.get(shard))]
    _check_disk(source, out, [shard for shard in shards if shard not in likely])
    with hold(out, "fp8 convert"), deferred(), _pool(processes) as pool:
        # a shard of an earlier run is trusted by its checksum only
        asked = {pool.submit(checksum, out / shard): shard for shard in likely}
        sums = {asked[job]: job.result() for job in _ended(asked)}
        kept = [shard for shard in likely if sums[shard] == done[shard].get("crc32")]
        left = [shard for shard in shards if shard not in kept]
        done = {shard: done[shard] for shard in kept}
        for part in out.rglob("*.safetensors.*.part"):
            part.unlink(missing_ok=True)
        _write_record(out, done, complete=False)
        jobs = {pool.submit(convert_shard, source / shard, out / shard): shard for shard in left}
        for job in _ended(jobs):
            done[jobs[job]] = job.result()
            _write_record(out, done, complete=False)
            progress(jobs[job])
        _copy_others(source, out)
        _write_record(out, done, complete=True)
    # the projections that were copied unchanged
    names = []
    for header in headers.values():
        for name, entry in tensors_of(header):
            if action(name, entry["dtype"]) == "note":
                names.append(name)
    return Conversion(tuple(left), tuple(kept), tuple(sorted(names)))


def _ended(jobs: Iterable[Future[Any]]) -> Iterator[Future[Any]]:
    """Yield jobs as they end.

    Raises KeyboardInterrupt for a Ctrl-C that was deferred.
    """
    waiting = set(jobs)
    while waiting:
        check()
        ended, waiting = wait(waiting, timeout=TURN_SECONDS, return_when=FIRST_COMPLETED)
        yield from ended


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of worker processes that end with this one, however it ends."""
    pool = ProcessPoolExecutor(max(1, processes), initializer=_in_worker, initargs=(os.getpid(),))
    try:
        yield pool
    except BaseException:
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_worker(parent: int) -> None:
    # Ctrl-C is the parent's to act on; a parent that is killed cannot
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    in_background(watch)


def _check_scales(source: Path, headers: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a checkpoint whose weights and scales would not be changed together.

    Its numbers would be wrong.
    """
    dtypes = {
        name: entry["dtype"] for header in headers.values() for name, entry in tensors_of(header)
    }
    for name, dtype in dtypes.items():
        weight = weight_of(name)
        if weight is None:
            continue
        complete_pair = dtype in SCALE_DTYPES and dtypes.get(weight, "F8_E4M3") == "F8_E4M3"
        if not complete_pair:
            raise LaunchError(
                "fp8.scale",
                ExitCode.MODEL,
                path=str(source),
                name=name,
                dtype=dtype,
                weight=dtypes.get(weight, "-"),
            )


def convert_shard(source: Path, target: Path) -> dict[str, Any]:
    """Convert one file through ``.part`` and compare samples with the source.

    A file that differs is converted once more. Returns the record's entry: source size, mtime,
    crc32. Raises LaunchError (FAILED) when it differs twice.
    """
    wrong = ""
    for _ in range(_TRIES):
        part, entry = _convert_part(source, target)
        wrong = first_wrong(source, part)
        if not wrong:
            part.replace(target)
            return {**entry, "out_size": target.stat().st_size}
        part.unlink(missing_ok=True)
    raise LaunchError("fp8.mismatch", ExitCode.FAILED, path=str(target), name=wrong)


def _convert_part(source: Path, target: Path) -> tuple[Path, dict[str, Any]]:
    header, before = header_of(source), source.stat()
    start = before.st_size - max(
        (entry["data_offsets"][1] for _, entry in tensors_of(header)), default=0
    )
    written, table, part = (
        _new_header(header),
        conversion_table(),
        target.with_name(f"{target.name}.{os.getpid()}.part"),
    )
    text = json.dumps(written, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    target.parent.mkdir(parents=True, exist_ok=True)
    running = 0
    with source.open("rb") as read, part.open("wb") as write:
        for piece in (struct.pack("<Q", len(text)), text):
            running = crc32(piece, running)
            write.write(piece)
        for name, entry in tensors_of(header):
            does, (begin, end) = action(name, entry["dtype"]), entry["data_offsets"]
            read.seek(start + begin)
            for at in range(begin, end, CHUNK):
                data = read.read(min(CHUNK, end - at))
                if does == "weight":
                    data = table[np.frombuffer(data, np.uint8)].tobytes()
                elif does == "scale":
                    data = convert_scale(data, entry["dtype"])
                running = crc32(data, running)
                write.write(data)
        write.flush()
        os.fsync(write.fileno())
    return part, {"size": before.st_size, "mtime_ns": before.st_mtime_ns, "crc32": running}


def _new_header(header: Mapping[str, Any]) -> dict[str, Any]:
    new: dict[str, Any] = {}
    if "__metadata__" in header:
        new["__metadata__"] = header["__metadata__"]
    at = 0
    for name, entry in tensors_of(header):
        begin, end = entry["data_offsets"]
        size, dtype = end - begin, entry["dtype"]
        if action(name, dtype) == "scale":
            # scales of two bytes are written as four
            size *= 1 + (dtype != "F32")
            dtype = "F32"
        new[name] = {**entry, "dtype": dtype, "data_offsets": [at, at + size]}
        at += size
    return new


def _write_record(out: Path, shards: Mapping[str, Any], complete: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    part = out / (RECORD + ".part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(
            {"schema": 1, "kind": "fp8-gaudi2", "complete": complete, "shards": shards},
            file,
            indent=1,
        )
        file.flush()
        os.fsync(file.fileno())
    part.replace(out / RECORD)


def _is_done(source: Path, target: Path, entry: Any) -> bool:
    if not isinstance(entry, dict) or not target.is_file():
        return False
    now = source.stat()
    found = (now.st_size, now.st_mtime_ns, target.stat().st_size)
    return found == (entry.get("size"), entry.get("mtime_ns"), entry.get("out_size"))


def _check_disk(source: Path, out: Path, left: list[str]) -> None:
    # a 16-bit scale doubles; scales are under a thousandth of a checkpoint, a hundredth is room
    # enough
    needed = int(sum((source / shard).stat().st_size for shard in left) * 1.01)
    at = out.resolve()
    while not at.exists():
        at = at.parent
    free = shutil.disk_usage(at).free
    if free < needed:
        raise LaunchError(
            "fp8.disk",
            ExitCode.MACHINE,
            path=str(out),
            free=f"{free / 1e9:.1f}",
            needed=f"{needed / 1e9:.1f}",
        )


def _copy_others(source: Path, out: Path) -> None:
    for path in sorted(source.rglob("*")):
        ours = any(part.startswith(".gaudi-launch") for part in path.relative_to(source).parts)
        if path.is_file() and path.suffix != ".safetensors" and not ours:
            target = out / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + ".part")
            shutil.copyfile(path, part)
            part.replace(target)
