"""A cache root: its keys, their use by a plan, and one fill from begin to end."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.buckets.bucket_list import Bucket, Buckets
from gaudi_launch.core.recipes.key import KeyDifference, KeyParts
from gaudi_launch.core.recipes.key_locks import held, in_use, lock_path
from gaudi_launch.core.recipes.ledger import (
    Ledger,
    LedgerError,
    ledger_path,
    read_ledger,
    touched,
    write_ledger,
)
from gaudi_launch.core.recipes.manifest import (
    Findings,
    files_path,
    read_list,
    size_of,
    verify,
    walk,
    write_list,
)
from gaudi_launch.core.recipes.sharing import share, share_all

_log = logging.getLogger(__name__)

_OURS = re.compile(r"^\.?[0-9a-f]{16}(\.(json|files|lock|import|gone).*)?$")
_KEEP_TIMES = 19


def is_ours(name: str) -> bool:
    """Return True for a key's directory or one of our files in a root.

    A flat recipe is neither.
    """
    return bool(_OURS.match(name))


@dataclass(frozen=True)
class CacheEntry:
    """One key of a root: its ledger, or ``trouble`` when that is damaged."""

    key: str
    folder: Path
    ledger: Ledger | None
    files: int
    bytes: int
    trouble: str = ""
    in_use: bool = False

    @property
    def last_used(self) -> float:
        """Return when it was used last, in seconds since the epoch; 0.0 if unknown."""
        if self.ledger is None:
            return 0.0
        return self.ledger.last_used


@dataclass(frozen=True)
class Use:
    """The cached part of a plan: ``new`` buckets are still compiled.

    ``because`` is the sentence.
    """

    state: Literal["hit", "partial", "miss"]
    key: str
    folder: Path
    new: Buckets
    because: Message
    differences: tuple[KeyDifference, ...] = ()
    ledger: Ledger | None = None


def folder_of(root: Path, ledger: Ledger | None, key: str) -> Path:
    """Return the directory that the engine gets for a key."""
    if ledger is not None and ledger.folder == ".":
        return root
    return root / key


def skipped(root: Path, folder: Path) -> Callable[[str], bool]:
    """Return a test for names of our files in a key's directory."""
    if folder == root:
        return is_ours
    return lambda name: False


def flat_files(root: Path) -> bool:
    """Return True if the root contains recipes, as the start scripts leave them."""
    try:
        return any(entry.is_file() and not is_ours(entry.name) for entry in root.iterdir())
    except OSError:
        return False


def entries(root: Path, *, sizes: bool = True) -> list[CacheEntry]:
    """Return every key of a root, the last used first.

    A missing root has none.
    """
    try:
        names = [entry.name for entry in root.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise file_error("cache.unreadable", error, root) from None
    keys = sorted(
        {name.split(".")[0] for name in names if is_ours(name) and not name.startswith(".")}
    )
    found = [entry for key in keys if (entry := _entry(root, key, sizes=sizes)) is not None]
    return sorted(found, key=lambda entry: -entry.last_used)


def _entry(root: Path, key: str, *, sizes: bool) -> CacheEntry | None:
    """Return the entry of a key, None for a lock or a list without anything else."""
    trouble = ""
    ledger = None
    try:
        ledger = read_ledger(root, key)
    except LedgerError as error:
        trouble = str(error)
    folder = folder_of(root, ledger, key)
    if ledger is None and not trouble:
        if not folder.is_dir():
            return None
        trouble = "it has no ledger"
    files, total = 0, 0
    if sizes:
        files, total = size_of(folder, skipped(root, folder))
    return CacheEntry(key, folder, ledger, files, total, trouble, in_use(root, key))


def find(root: Path, key: str) -> CacheEntry:
    """Return the entry whose key begins with these digits.

    Raises LaunchError when none or several do.
    """
    every = entries(root, sizes=False)
    matching = [entry for entry in every if key and entry.key.startswith(key.lower())]
    if len(matching) == 1:
        return matching[0]
    id = "cache.no_such_key"
    if matching:
        id = "cache.ambiguous_key"
    known = ", ".join(entry.key for entry in matching or every) or "-"
    raise LaunchError(id, ExitCode.USAGE, key=key, path=str(root), known=known)


def look_up(root: Path, parts: KeyParts, wanted: Buckets, num_blocks: int | None = None) -> Use:
    """Return the cached part for these parts and buckets. Reads only."""
    key = parts.key
    try:
        ledger = read_ledger(root, key)
    except LedgerError as error:
        return Use(
            "miss", key, root / key, wanted, message("cache.miss_ledger", key=key, why=str(error))
        )
    if ledger is None:
        if flat_files(root):
            return Use("partial", key, root, wanted, message("cache.flat", path=str(root)))
        return _nearest(root, parts, wanted)
    folder = folder_of(root, ledger, key)
    new = Buckets(
        _missing(wanted.prompt, ledger.buckets.prompt),
        _missing(wanted.decode, ledger.buckets.decode),
    )
    if not folder.is_dir() or next(walk(folder, skipped(root, folder)), None) is None:
        return Use("miss", key, folder, wanted, message("cache.miss_empty", key=key), ledger=ledger)
    if not ledger.complete:
        because = message("cache.interrupted", key=key)
    elif new.graphs:
        because = message("cache.partial", new=new.graphs, graphs=wanted.graphs)
    elif len({num_blocks, ledger.num_blocks} - {None}) > 1:
        # HabanaAI/vllm-fork pull 1054: another number of KV blocks compiled two large graphs again
        because = message("cache.other_blocks", was=ledger.num_blocks, now=num_blocks)
    else:
        because = message("cache.hit", graphs=wanted.graphs, key=key)
        return Use("hit", key, folder, new, because, ledger=ledger)
    return Use("partial", key, folder, new, because, ledger=ledger)


def _missing(wanted: Sequence[Bucket], warm: Sequence[Bucket]) -> list[Bucket]:
    known = {tuple(bucket) for bucket in warm}
    return [bucket for bucket in wanted if tuple(bucket) not in known]


def _nearest(root: Path, parts: KeyParts, wanted: Buckets) -> Use:
    folder = root / parts.key
    near: tuple[KeyDifference, ...] | None = None
    for entry in entries(root, sizes=False):
        if entry.ledger is None or entry.ledger.parts.model != parts.model:
            continue
        differences = entry.ledger.parts.differences(parts)
        if near is None or len(differences) < len(near):
            near = differences
    if not near:
        return Use("miss", parts.key, folder, wanted, message("cache.miss_first"))
    words = "; ".join(d.shown() for d in near)
    return Use(
        "miss", parts.key, folder, wanted, message("cache.miss_differs", differences=words), near
    )


@dataclass
class Session:
    """A cache directory while one engine runs on it; made by `opened`.

    ``filled`` lets others fill it.
    """

    root: Path
    ledger: Ledger
    filling: bool
    repaired: tuple[str, ...] = ()
    filled: Callable[[], None] = lambda: None

    @property
    def folder(self) -> Path:
        return folder_of(self.root, self.ledger, self.ledger.key)

    def finish(self, seconds: float, warmed: Buckets, num_blocks: int | None) -> None:
        """List the files and record what is warm, now that the warm-up ended.

        Launches that wait for this fill continue.
        """
        try:
            self._finish(seconds, warmed, num_blocks)
        finally:
            self.filled()

    def _finish(self, seconds: float, warmed: Buckets, num_blocks: int | None) -> None:
        skip = skipped(self.root, self.folder)
        share_all(self.folder, self.root)
        files, total = write_list(self.root, self.ledger.key, self.folder, skip)
        known = self.ledger
        if not self.filling:
            # another launch may be filling it, or have filled it in the meantime
            known = self._written()
        # a changed number of KV blocks made the older graphs useless
        if known.num_blocks in (None, num_blocks):
            warmed = Buckets(
                known.buckets.prompt + _missing(warmed.prompt, known.buckets.prompt),
                known.buckets.decode + _missing(warmed.decode, known.buckets.decode),
            )
        ledger = touched(known, time.time())
        if self.filling:
            ledger = replace(ledger, filled_seconds=(*ledger.filled_seconds, seconds))
        else:
            ledger = replace(ledger, used_seconds=(*ledger.used_seconds[-_KEEP_TIMES:], seconds))
        self.ledger = replace(
            ledger,
            complete=self.filling or known.complete,
            buckets=warmed,
            num_blocks=num_blocks,
            files=files,
            bytes=total,
        )
        write_ledger(self.root, self.ledger)

    def _written(self) -> Ledger:
        """Return the ledger as it is now."""
        try:
            return read_ledger(self.root, self.ledger.key) or self.ledger
        except LedgerError as error:
            _log.debug("the index is not read again: %s", error)
            return self.ledger


@contextlib.contextmanager
def opened(
    root: Path,
    parts: KeyParts,
    wanted: Buckets,
    num_blocks: int | None = None,
    wait_seconds: float = 0.0,
) -> Iterator[Session]:
    """Lock the directory of these parts while an engine runs on it.

    It is shared with other services. A miss is a fill, which only one launch does at a time, until
    its ``finish``; zero-length files of an interrupted fill are removed first. Until then the
    ledger records that the fill is not complete, so a kill at any point leaves nothing that claims
    more than it has. Raises LaunchError when the root cannot be written or another launch is
    filling the key.
    """
    key = parts.key
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(root, error) from None
    with (
        held(root, key, exclusive=False, wait_seconds=wait_seconds),
        contextlib.ExitStack() as fill,
    ):
        use = look_up(root, parts, wanted, num_blocks)
        if use.state != "hit":
            fill.enter_context(
                held(root, key, exclusive=True, wait_seconds=wait_seconds, fill=True)
            )
            # the launch that was waited for may have filled it
            use = look_up(root, parts, wanted, num_blocks)
            if use.state == "hit":
                fill.close()
        try:
            yield _begin(root, parts, use, fill.close)
        except OSError as error:
            raise _not_writable(root, error) from None


def _not_writable(root: Path, error: OSError) -> LaunchError:
    """Return the error of a root: another user's, or a full or read-only disk."""
    why = error.strerror or str(error)
    id = "cache.not_writable"
    if isinstance(error, PermissionError):
        id = "cache.not_shared"
    return LaunchError(id, ExitCode.FAILED, path=str(root), why=why)


def _begin(root: Path, parts: KeyParts, use: Use, filled: Callable[[], None]) -> Session:
    now = time.time()
    filling = use.state != "hit"
    # "." is the root itself
    folder = str(use.folder.relative_to(root))
    ledger = use.ledger or Ledger(parts, folder, created=now)
    repaired: tuple[str, ...] = ()
    if filling:
        use.folder.mkdir(parents=True, exist_ok=True)
        share(use.folder, root)
        # remove empty files, and those that another user of the root left unreadable
        names = [
            name
            for name, status in walk(use.folder, skipped(root, use.folder))
            if not status.st_size or not os.access(use.folder / name, os.R_OK)
        ]
        for name in names:
            (use.folder / name).unlink(missing_ok=True)
        repaired = tuple(names)
        ledger = replace(ledger, complete=False)
    ledger = touched(ledger, now)
    write_ledger(root, ledger)
    return Session(root, ledger, filling, repaired, filled)


def adopt(root: Path, parts: KeyParts, warmed: Buckets) -> Ledger:
    """Write a ledger for recipes that are flat in the root.

    The files stay where they are.
    """
    if not flat_files(root):
        raise LaunchError("cache.nothing_to_adopt", ExitCode.USAGE, path=str(root))
    with held(root, parts.key, exclusive=True):
        files, total = write_list(root, parts.key, root, is_ours)
        now = time.time()
        # it is not recorded whether the warm-up that left them had ended
        ledger = Ledger(parts, ".", complete=False, buckets=warmed, created=now, last_used=now)
        ledger = replace(ledger, files=files, bytes=total)
        write_ledger(root, ledger)
    return ledger


def check(root: Path, entry: CacheEntry, *, quick: bool) -> Findings:
    """Compare one key's files with its list."""
    skip = skipped(root, entry.folder)
    return verify(root, entry.key, entry.folder, quick=quick, skip=skip)


def remove(root: Path, entry: CacheEntry) -> None:
    """Remove one key completely; of a flat folder only the files on its list.

    Raises LaunchError when in use.
    """
    # the key's lock file stays, because another process may be waiting on it; the one for filling
    # can go, because a process that waits on it has locked the key's
    with held(root, entry.key, exclusive=True):
        lock_path(root, entry.key, fill=True).unlink(missing_ok=True)
        listed = read_list(root, entry.key)
        if entry.folder == root:
            for name in listed:
                (root / name).unlink(missing_ok=True)
        elif entry.folder.is_dir():
            # removed from view at once: a reader sees the complete directory or none
            gone = root / f".{entry.key}.gone-{time.time_ns()}"
            entry.folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
        ledger_path(root, entry.key).unlink(missing_ok=True)
        files_path(root, entry.key).unlink(missing_ok=True)


def sweep(root: Path) -> None:
    """Remove what a killed removal or import left."""
    for path in root.glob(".*"):
        if is_ours(path.name) and (".gone-" in path.name or ".import-" in path.name):
            shutil.rmtree(path, ignore_errors=True)
