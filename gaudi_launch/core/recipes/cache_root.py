"""A cache root: its keys, and their use by a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gaudi_launch.core.base.errors import file_error
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.buckets.bucket_list import Bucket, Buckets
from gaudi_launch.core.recipes.key import KeyDifference, KeyParts
from gaudi_launch.core.recipes.key_locks import in_use
from gaudi_launch.core.recipes.ledger import (
    Ledger,
    LedgerError,
    read_ledger,
)
from gaudi_launch.core.recipes.manifest import (
    size_of,
    walk,
)

_OURS = re.compile(r"^\.?[0-9a-f]{16}(\.(json|files|lock|import|gone).*)?$")


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
        missing(wanted.prompt, ledger.buckets.prompt),
        missing(wanted.decode, ledger.buckets.decode),
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


def missing(wanted: Sequence[Bucket], warm: Sequence[Bucket]) -> list[Bucket]:
    """Return the buckets that are not warm."""
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
