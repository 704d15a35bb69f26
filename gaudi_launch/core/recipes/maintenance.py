"""Find, adopt, check and remove the keys of a cache root."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.recipes.cache_root import CacheEntry, entries, flat_files, is_ours, skipped
from gaudi_launch.core.recipes.key import KeyParts
from gaudi_launch.core.recipes.key_locks import held, lock_path
from gaudi_launch.core.recipes.ledger import Ledger, ledger_path, write_ledger
from gaudi_launch.core.recipes.manifest import Findings, files_path, read_list, verify, write_list


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
