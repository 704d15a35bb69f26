"""The size limit of a cache, and the keys that are removed first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.recipes.cache_root import CacheEntry

MIB = 1 << 20
# assumed, no published figure: the scripts' 16384 MB were outgrown by grids of several hundred
# graphs
ASSUMED_MIB_PER_GRAPH = 64
# the value of the 1.21 script (HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh); never less where
# disk allows
LEAST_MIB = 16384
_SPARE_SHARE = 0.1


def size_limit(
    graphs: int, free_bytes: int, held_bytes: int = 0, measured_graphs: int = 0
) -> tuple[int, Message, bool]:
    """Return a limit that a plan's graphs cannot exceed, within 90 % of free disk.

    It is the third field of PT_HPU_RECIPE_CACHE_CONFIG in MB, with its reason, and whether the disk
    is too small for it.

    ``held_bytes`` in ``measured_graphs`` graphs are of an earlier fill: they give the size of a
    graph; without them it is assumed. At the limit the bridge silently removes the oldest recipes
    (docs: Runtime Environment Variables).
    """
    id = "cache.limit_assumed"
    per_graph: float = ASSUMED_MIB_PER_GRAPH
    if held_bytes > 0 and measured_graphs > 0:
        per_graph, id = held_bytes / measured_graphs / MIB, "cache.limit_measured"
    wanted = max(LEAST_MIB, int(2 * per_graph * max(graphs, 1)))
    room = int((free_bytes * (1 - _SPARE_SHARE) + held_bytes) / MIB)
    reason = message(id, graphs=graphs, per_graph=round(per_graph, 1))
    return max(1, min(wanted, room)), reason, room < wanted


@dataclass(frozen=True)
class Doomed:
    """A key to remove and the reason."""

    entry: CacheEntry
    reason: Message


def to_prune(
    found: Iterable[CacheEntry],
    *,
    now: float,
    max_bytes: int | None = None,
    older_seconds: float | None = None,
) -> list[Doomed]:
    """Return the keys to remove, least recently used first; never one in use."""
    candidates = sorted((entry for entry in found if not entry.in_use), key=lambda e: e.last_used)
    doomed: dict[str, Doomed] = {}
    for entry in candidates:
        age = now - entry.last_used
        if older_seconds is not None and age > older_seconds:
            why = message("cache.prune_old", days=round(age / 86400))
            doomed[entry.key] = Doomed(entry, why)
    left = [entry for entry in candidates if entry.key not in doomed]
    total = sum(entry.bytes for entry in left)
    while max_bytes is not None and left and total > max_bytes:
        oldest = left.pop(0)
        doomed[oldest.key] = Doomed(oldest, message("cache.prune_size", bytes=oldest.bytes))
        total -= oldest.bytes
    return list(doomed.values())


_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_AGES = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_size(text: str) -> int:
    """Return bytes of ``200G``, ``1.5T``, ``512MiB``. Raises LaunchError.

    >>> parse_size("1.5G")
    1610612736
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:iB|B)?", text.strip(), re.ASCII)
    if found is None:
        raise LaunchError("cache.bad_size", ExitCode.USAGE, found=text)
    return int(float(found[1]) * _SIZES[found[2]])


def parse_age(text: str) -> float:
    """Return seconds of ``30d``, ``12h``, ``2w``. Raises LaunchError.

    >>> parse_age("2h")
    7200.0
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|h|d|w)", text.strip(), re.ASCII)
    if found is None:
        raise LaunchError("cache.bad_age", ExitCode.USAGE, found=text)
    return float(found[1]) * _AGES[found[2]]
