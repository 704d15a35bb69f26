"""A key as one file for another machine: FILE.tar.zst.

It contains the ledger first, the list, then the recipes.
"""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, cast

from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.paths import put
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.recipes.cache_root import CacheEntry, skipped
from gaudi_launch.core.recipes.key import KeyDifference, KeyParts
from gaudi_launch.core.recipes.key_locks import held
from gaudi_launch.core.recipes.ledger import (
    Ledger,
    LedgerError,
    read_ledger,
    write_ledger,
    write_whole,
)
from gaudi_launch.core.recipes.manifest import checksum, files_path, read_list, write_list
from gaudi_launch.core.recipes.sharing import share_all

_log = logging.getLogger(__name__)

# a line of the list: name, size, checksum, modification time
_LISTED = re.compile(r"([^\t]*)\t([0-9]{1,19})\t([^\t]*)\t[^\t]*", re.DOTALL)
_LEDGER, _LIST, _RECIPES = "ledger.json", "files", "recipes/"
_MOST_LEDGER_BYTES = 64 << 20
# both documents with their tar headers
_MOST_HEAD_BYTES = 2 * _MOST_LEDGER_BYTES + (1 << 20)
# a member's tar and pax headers (a path has at most 4 KiB) and its padding
_MEMBER_BYTES = 16 << 10
# kept free in addition to the recipes, for the ledger and other writers
_SPARE_BYTES = 16 << 20


def export(root: Path, entry: CacheEntry, target: Path) -> tuple[int, int]:
    """Write one key to a file; return (files, bytes). The file appears atomically.

    Raises LaunchError when the key has no valid ledger, or the file cannot be written.
    """
    if entry.ledger is None:
        raise LaunchError("cache.no_ledger", ExitCode.FAILED, key=entry.key, why=entry.trouble)
    part = target.with_name(f".{target.name}.part")
    try:
        with held(root, entry.key, exclusive=False), part.open("wb") as raw:
            # a service may have added recipes since the list was written
            write_list(root, entry.key, entry.folder, skipped(root, entry.folder))
            counted = _write(root, entry, entry.ledger, raw)
        put(part, target)
    except OSError as error:
        raise file_error("cache.export_failed", error, target) from None
    finally:
        part.unlink(missing_ok=True)
    return counted


def _write(root: Path, entry: CacheEntry, ledger: Ledger, raw: IO[bytes]) -> tuple[int, int]:
    import zstandard

    document = ledger.to_json() | {"folder": ledger.key}
    files = total = 0
    with (
        zstandard.ZstdCompressor(level=3, threads=-1).stream_writer(raw, closefd=False) as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        _add(tar, _LEDGER, json.dumps(document, sort_keys=True).encode())
        _add(tar, _LIST, files_path(root, entry.key).read_bytes())
        for name, (size, _, modified) in sorted(read_list(root, entry.key).items()):
            info = tarfile.TarInfo(_RECIPES + name)
            info.size, info.mode = size, 0o644
            info.pax_headers = {"mtime": f"{modified // 10**9}.{modified % 10**9:09d}"}
            with (entry.folder / name).open("rb") as file:
                tar.addfile(info, file)
            files += 1
            total += size
    return files, total


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    tar.addfile(info, io.BytesIO(content))


def differences(ledger: Ledger, here: KeyParts) -> tuple[KeyDifference, ...]:
    """Return what makes these recipes useless on this machine.

    Product, stepping and driver release are compared, where both are known.
    """
    return tuple(
        difference
        for difference in ledger.parts.differences(here)
        if difference.name in ("product", "stepping", "driver")
        and difference.was
        and difference.now
    )


def import_(root: Path, source: Path, here: KeyParts, *, force: bool = False) -> Ledger:
    """Import a key into a root; return its ledger.

    The key appears complete, with its checksums compared, or not at all.

    Raises LaunchError when the file is not an export of this program, was made for another machine
    (unless ``force``), contains names that lead outside, is damaged, or when the root already has
    the key (unless ``force``). Nothing is written that the archive's list does not name with that
    size, and nothing that the disk has no room for.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _opened(source) as (tar, bounded):
            ledger, content = _head(tar, source)
            listed = _Listed(content)
            bounded.allow(listed.total + _MEMBER_BYTES * (len(listed.files) + 1))
            different = differences(ledger, here)
            if different and not force:
                words = "; ".join(d.shown() for d in different)
                raise LaunchError(
                    "cache.import_differs", ExitCode.MACHINE, path=str(source), differences=words
                )
            if read_or_none(root, ledger.key) is not None and not force:
                raise LaunchError(
                    "cache.import_exists", ExitCode.FAILED, key=ledger.key, path=str(root)
                )
            _check_room(root, listed, source)
            with held(root, ledger.key, exclusive=True):
                _unpack(tar, root, ledger, listed, source)
    except OSError as error:
        raise file_error("cache.import_failed", error, source) from None
    return ledger


def read_or_none(root: Path, key: str) -> Ledger | None:
    """Return the ledger of a key; None also when it is damaged."""
    try:
        return read_ledger(root, key)
    except LedgerError as error:
        _log.debug("the index is not read: %s", error)
        return None


class _Listed:
    """The archive's list of its files: name -> (size, digest)."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.files: dict[str, tuple[int, str]] = {}
        for line in content.decode("utf-8", "surrogateescape").split("\n"):
            found = _LISTED.fullmatch(line)
            if found:
                self.files[found[1]] = (int(found[2]), found[3])

    @property
    def total(self) -> int:
        return sum(size for size, _ in self.files.values())


class _Bounded:
    """A stream with a limit: an archive cannot unpack to more than it lists."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = _MOST_HEAD_BYTES

    def allow(self, count: int) -> None:
        """Let this many more bytes through."""
        self._left += count

    def read(self, size: int = -1) -> bytes:
        """Read like a file. Raises TarError for more than is allowed."""
        content = self._stream.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise tarfile.ReadError("larger than its own list")
        return content


def _check_room(root: Path, listed: _Listed, source: Path) -> None:
    free = shutil.disk_usage(root).free
    needed = listed.total + _SPARE_BYTES
    if needed > free:
        raise LaunchError(
            "cache.import_no_room",
            ExitCode.MACHINE,
            path=str(source),
            root=str(root),
            needed=f"{needed / 2**20:.0f}",
            free=f"{free / 2**20:.0f}",
        )


@contextmanager
def _opened(source: Path) -> Iterator[tuple[tarfile.TarFile, _Bounded]]:
    import zstandard

    try:
        with (
            source.open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as stream,
        ):
            bounded = _Bounded(stream)
            with tarfile.open(fileobj=cast("IO[bytes]", bounded), mode="r|") as tar:
                yield tar, bounded
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        raise LaunchError(
            "cache.import_damaged", ExitCode.FAILED, path=str(source), why=str(error)
        ) from None


def _head(tar: tarfile.TarFile, source: Path) -> tuple[Ledger, bytes]:
    contents = []
    for expected in (_LEDGER, _LIST):
        member = tar.next()
        named = member is not None and member.isfile() and member.name == expected
        if member is None or not named or member.size > _MOST_LEDGER_BYTES:
            raise LaunchError(
                "cache.import_not_ours", ExitCode.USAGE, path=str(source), why=f"no {expected}"
            )
        file = tar.extractfile(member)
        assert file is not None, "a regular file has a content"
        contents.append(file.read())
    try:
        return Ledger.from_json(parse_json(contents[0])), contents[1]
    except (LedgerError, ValueError) as error:
        raise LaunchError(
            "cache.import_not_ours", ExitCode.USAGE, path=str(source), why=str(error)
        ) from None


def _unpack(
    tar: tarfile.TarFile, root: Path, ledger: Ledger, listed: _Listed, source: Path
) -> None:
    fresh = root / f".{ledger.key}.import-{time.time_ns()}"
    try:
        fresh.mkdir()
        while (member := tar.next()) is not None:
            name = _safe(member, source)
            size, _ = listed.files.get(name, (None, ""))
            if member.issparse() or size != member.size:
                where = {"path": str(source), "why": name}
                raise LaunchError("cache.import_damaged", ExitCode.FAILED, **where)
            file = tar.extractfile(member)
            assert file is not None  # _safe lets regular files through only
            target = fresh / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                shutil.copyfileobj(file, out, 1 << 20)
        wanted = listed.files
        found = {
            path.relative_to(fresh).as_posix(): (path.stat().st_size, checksum(path))
            for path in fresh.rglob("*")
            if path.is_file()
        }
        if found != wanted:
            wrong = sorted({*found.items()} ^ {*wanted.items()})[0][0]
            raise LaunchError("cache.import_damaged", ExitCode.FAILED, path=str(source), why=wrong)
        share_all(fresh, root)
        target = root / ledger.key
        if target.exists():
            target.rename(root / f".{ledger.key}.gone-{time.time_ns()}")
        fresh.rename(target)
        write_whole(files_path(root, ledger.key), listed.content)
        write_ledger(root, ledger)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        for gone in root.glob(f".{ledger.key}.gone-*"):
            shutil.rmtree(gone, ignore_errors=True)


def _safe(member: tarfile.TarInfo, source: Path) -> str:
    path = PurePosixPath(member.name)
    inside = path.parts[1:]
    plain = member.isreg() and path.parts[:1] == ("recipes",) and inside and ".." not in inside
    if not plain or path.is_absolute() or "\0" in member.name:
        raise LaunchError(
            "cache.import_unsafe", ExitCode.FAILED, path=str(source), name=repr(member.name)
        )
    return "/".join(inside)


def sync_command(root: Path, entry: CacheEntry, target: str) -> list[str]:
    """Return the rsync command that copies one key to a host.

    The target is ``user@host`` or ``user@host:DIR`` (the same root without DIR). Raises LaunchError
    for a target that rsync would read as an option.
    """
    host, colon, folder = target.partition(":")
    if not host or host.startswith("-") or any(c.isspace() for c in target):
        raise LaunchError("cache.bad_target", ExitCode.USAGE, found=target)
    sources = [root / f"{entry.key}.json", root / f"{entry.key}.files", entry.folder]
    if colon and folder:
        destination = folder
    else:
        destination = str(root.absolute())
    words = ["rsync", "-a", "--partial", "--mkpath", *(str(path.absolute()) for path in sources)]
    return [*words, f"{host}:{destination.rstrip('/')}/"]
