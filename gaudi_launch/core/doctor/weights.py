"""Weights and disks: complete model, free space, local cache."""

from __future__ import annotations

import logging
from pathlib import Path

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.reader import parse_json, read_json
from gaudi_launch.core.doctor.findings import DoctorFacts, Remedy, Verdict, Weights, check
from gaudi_launch.core.host.host_config import Disk
from gaudi_launch.core.models.weights import TOKENIZER, has_tokenizer

_log = logging.getLogger(__name__)

_NETWORK = (
    "nfs", "cifs", "smb", "ceph", "lustre", "glusterfs", "fuse.", "9p", "beegfs", "gpfs", "wekafs",
    "afs", "ocfs2",
)  # fmt: skip
# assumed: recipe caches of eight cards are gigabytes; with less than 1 GiB the first graphs no
# longer fit
_CACHE_MIB, _CACHE_LEAST_MIB = 20 * 1024, 1024
_LARGEST_HEADER = 100 << 20  # the limit of safetensors
_POINTER = b"version https://git-lfs"
# of files with another content than their format's
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)


def read_weights(path: str) -> Weights:
    """Read a model folder: config, index, and the headers of safetensors files.

    Never raises, whatever the folder contains; reads headers only, never weights.
    """
    folder = Path(path)
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    except OSError as error:
        return Weights(path, problem=error.strerror or str(error))
    indexed: set[str] = set()
    damaged: list[str] = []
    for name in names:
        if name.endswith((".safetensors.index.json", ".bin.index.json")):
            try:
                index = read_json(folder / name)
                indexed |= {str(file) for file in index["weight_map"].values()}
            except _UNREADABLE as error:
                _log.debug("an index cannot be read: %s", error)
                damaged.append(name)
    files = [name for name in names if name.endswith((".safetensors", ".bin", ".pt"))]
    damaged += [name for name in files if _is_damaged(folder / name)]
    missing = sorted(indexed - set(names))
    if files and not has_tokenizer(names):
        missing.append(TOKENIZER)
    return Weights(
        path,
        bytes=sum((folder / name).stat().st_size for name in files) or None,
        has_config="config.json" in names,
        files=len(files),
        missing=tuple(missing),
        damaged=tuple(damaged),
    )


def _is_damaged(path: Path) -> bool:
    """Return True for a git-lfs pointer, an empty file, or a wrong length.

    The length is compared with the safetensors header.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(len(_POINTER))
            if size == 0 or start == _POINTER:
                return True
            if path.suffix != ".safetensors":
                return False
            length = int.from_bytes(start[:8], "little")
            if size < 8 or length > min(size - 8, _LARGEST_HEADER):
                return True
            file.seek(8)
            header = parse_json(file.read(length), _LARGEST_HEADER)
        ends = [
            entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"
        ]
        return size != 8 + length + max(ends, default=0)
    except _UNREADABLE as error:
        _log.debug("a shard cannot be read: %s", error)
        return True


def _weights(facts: DoctorFacts) -> Weights:
    assert facts.weights is not None
    return facts.weights


def _short(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" … (+{len(names) - 3})" if len(names) > 3 else "")


@check("weights.complete", "Hugging Face safetensors index", ("weights",))
def _complete(facts: DoctorFacts) -> Verdict:
    weights = _weights(facts)
    remedy = Remedy(
        message("doctor.weights.remedy"), commands=(f"gaudi-launch inspect {weights.path}",)
    )
    if weights.problem:
        return Verdict.fail(
            "doctor.weights.complete.folder",
            weights.problem,
            weights.path,
            remedy,
            path=weights.path,
        )
    if not weights.has_config:
        return Verdict.fail(
            "doctor.weights.complete.config", "-", "config.json", remedy, path=weights.path
        )
    if weights.missing or not weights.files:
        found = _short(weights.missing) or "-"
        count = len(weights.missing)
        return Verdict.fail(
            "doctor.weights.complete.missing", found, "", remedy, path=weights.path, count=count
        )
    return Verdict.ok(str(weights.files), str(weights.files))


@check("weights.sizes", "safetensors format: header length and data offsets", ("weights",))
def _sizes(facts: DoctorFacts) -> Verdict:
    weights = _weights(facts)
    if weights.problem:
        return Verdict.unknown("doctor.weights.sizes.unknown", weights.problem)
    if not weights.damaged:
        return Verdict.ok(f"{(weights.bytes or 0) / 2**30:.1f} GiB")
    remedy = Remedy(message("doctor.weights.remedy"))
    return Verdict.fail(
        "doctor.weights.sizes.fail", _short(weights.damaged), "", remedy, count=len(weights.damaged)
    )


def _cache(facts: DoctorFacts) -> Disk | None:
    return facts.config.disks.get("cache")


@check("cache.space", "assumed: sizes of recipe caches in public guides")
def _cache_space(facts: DoctorFacts) -> Verdict:
    disk = _cache(facts)
    expected = f">= {_CACHE_MIB >> 10} GiB"
    if disk is None or disk.free_mib is None:
        return Verdict.unknown("doctor.cache.unknown", "", expected)
    shown = f"{disk.free_mib / 1024:.1f} GiB ({disk.path})"
    prune = "gaudi-launch cache prune --older 30d --yes"
    remedy = Remedy(message("doctor.cache.space.remedy"), commands=(prune,))
    if disk.writable is False:
        return Verdict.fail(
            "doctor.cache.space.closed",
            disk.path,
            "rw",
            Remedy(message("doctor.cache.space.closed_remedy")),
        )
    if disk.free_mib < _CACHE_LEAST_MIB:
        return Verdict.fail("doctor.cache.space.fail", shown, expected, remedy)
    if disk.free_mib < _CACHE_MIB:
        return Verdict.warn("doctor.cache.space.warn", shown, expected, remedy)
    return Verdict.ok(shown, expected)


@check("cache.filesystem", "assumed: many ranks lock and rename small files")
def _cache_filesystem(facts: DoctorFacts) -> Verdict:
    disk = _cache(facts)
    if disk is None or disk.kind is None:
        return Verdict.unknown("doctor.cache.unknown")
    shown = f"{disk.kind} ({disk.path})"
    if not disk.kind.startswith(_NETWORK):
        return Verdict.ok(shown)
    remedy = Remedy(
        message("doctor.cache.filesystem.remedy"),
        commands=("export XDG_CACHE_HOME=/local/disk/cache",),
    )
    return Verdict.warn("doctor.cache.filesystem.warn", shown, "ext4, xfs", remedy)


@check("cache.conversion", "assumed: a converted copy is no larger than its source", ("weights",))
def _conversion(facts: DoctorFacts) -> Verdict:
    """Check the space for a conversion to FP8.

    It writes a second copy, at most as large as the first.
    """
    weights, disk = _weights(facts), facts.config.disks.get("data")
    if weights.bytes is None:
        return Verdict.unknown("doctor.memory.available.unknown")
    if disk is None or disk.free_mib is None:
        return Verdict.unknown("doctor.cache.unknown")
    expected = f">= {weights.bytes / 2**30:.1f} GiB"
    shown = f"{disk.free_mib / 1024:.1f} GiB ({disk.path})"
    if disk.free_mib >= weights.bytes >> 20:
        return Verdict.ok(shown, expected)
    remedy = Remedy(message("doctor.cache.conversion.remedy"))
    return Verdict.warn("doctor.cache.conversion.warn", shown, expected, remedy)
