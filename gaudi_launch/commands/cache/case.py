"""The use cases of ``gaudi-launch cache``: list, verify, prune and ship caches.

They are caches of compiled graphs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.base.paths import cache_dir
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.recipes import cache_root, maintenance
from gaudi_launch.core.recipes.cache_root import CacheEntry
from gaudi_launch.core.recipes.key import KeyDifference, KeyParts, parts_of, parts_of_host
from gaudi_launch.core.recipes.ledger import Ledger
from gaudi_launch.core.recipes.manifest import Findings
from gaudi_launch.core.recipes.size_limits import Doomed, parse_age, parse_size, to_prune


@dataclass(frozen=True)
class CachedKey:
    """A key, and what differs from the machine that would use it."""

    entry: CacheEntry
    differences: tuple[KeyDifference, ...]

    @property
    def state(self) -> str:
        """Return the state of the key: hit, partial, miss or unknown.

        partial: an interrupted fill; miss: another machine; unknown: no index.
        """
        if self.entry.ledger is None:
            return "unknown"
        if self.differences:
            return "miss"
        if self.entry.ledger.complete:
            return "hit"
        return "partial"


def root_of(cache: Path | None) -> Path:
    """Return the cache root: the given one, else that of this user."""
    if cache is not None:
        return cache
    return cache_dir() / "recipes"


def parts_here(machine: str | None) -> KeyParts:
    """Return the parts of a key that a machine decides."""
    from gaudi_launch.core.launch.machine import load

    return parts_of_host(load(machine))


def listing(root: Path, machine: str | None) -> list[CachedKey]:
    """List the keys of a root, compared with this machine or the given one."""
    from gaudi_launch.core.recipes.ship import differences

    here = parts_here(machine)
    keys = []
    for entry in cache_root.entries(root):
        different = differences(entry.ledger, here) if entry.ledger is not None else ()
        keys.append(CachedKey(entry, different))
    return keys


def indexed(root: Path, key: str) -> tuple[CacheEntry, Ledger]:
    """Return a key with its index. Raises LaunchError for a key without one."""
    entry = maintenance.find(root, key)
    if entry.ledger is None:
        raise LaunchError("cache.no_ledger", ExitCode.FAILED, key=entry.key, why=entry.trouble)
    return entry, entry.ledger


def verify(root: Path, key: str | None, *, quick: bool) -> list[tuple[CacheEntry, Findings]]:
    """Compare one key or all with their indexes."""
    chosen: Sequence[CacheEntry] = (
        [maintenance.find(root, key)] if key else cache_root.entries(root, sizes=False)
    )
    return [(entry, maintenance.check(root, entry, quick=quick)) for entry in chosen]


def prune(
    root: Path, max_size: str | None, older: str | None, *, remove: bool
) -> tuple[list[Doomed], list[str]]:
    """Return the keys that the limits condemn, and the names of removed ones.

    Raises LaunchError without any limit, or for a limit that cannot be read.
    """
    if max_size is None and older is None:
        raise LaunchError("cache.prune_nothing_asked", ExitCode.USAGE)
    doomed = to_prune(
        cache_root.entries(root),
        now=time.time(),
        max_bytes=mapped(parse_size, max_size),
        older_seconds=mapped(parse_age, older),
    )
    removed = []
    if remove:
        for each in doomed:
            maintenance.remove(root, each.entry)
            removed.append(each.entry.key)
        maintenance.sweep(root)
    return doomed, removed


def sync_command(root: Path, key: str, target: str) -> list[str]:
    """Return the command that copies a key to another machine."""
    from gaudi_launch.core.recipes import ship

    return ship.sync_command(root, maintenance.find(root, key), target)


def sync(words: Sequence[str]) -> None:
    """Run a command of `sync_command`.

    Raises LaunchError when it cannot start or fails.
    """
    from gaudi_launch.core.base import interrupt

    try:
        status = interrupt.attend(words)
    except OSError as error:
        raise LaunchError("cache.sync_failed", ExitCode.FAILED, why=str(error)) from None
    if status:
        raise LaunchError("cache.sync_failed", ExitCode.FAILED, why=f"rsync: {status}")


def adopt(options: LaunchOptions) -> tuple[Path, Ledger]:
    """Write an index for a folder of the start scripts; return its root and index.

    No start script recorded the buckets that its files cover, so none are claimed.
    """
    from gaudi_launch.core.launch.prepared import prepare

    root = root_of(Path(options.cache_dir) if options.cache_dir else None)
    prepared = prepare(options)
    return root, maintenance.adopt(root, parts_of(prepared.plan(), prepared.host), Buckets([], []))
