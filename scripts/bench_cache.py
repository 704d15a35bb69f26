"""Time `cache list` and `verify --quick` on many recipes.

They are compared with one os.scandir walk with stat of the same tree. Run: python
scripts/bench_cache.py [FILES]    (default 100000). Prints seconds (median of 5) and ratios.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.recipes import cache_root, keeper, maintenance
from gaudi_launch.core.recipes.key import KeyParts

KEYS = 20


def bare_walk(folder: str) -> int:
    """Return the reference: every entry below a folder, each with its lstat."""
    count = 0
    stack = [folder]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
                else:
                    entry.stat(follow_symlinks=False)
                    count += 1
    return count


def fill(root: Path, files: int) -> None:
    for number in range(KEYS):
        parts = KeyParts(model="bench", tensor_parallel=number + 1)
        with keeper.opened(root, parts, Buckets([], [])) as session:
            for recipe in range(files // KEYS):
                (session.folder / f"graph_{recipe:06d}.recipe").write_bytes(b"x")
            session.finish(1.0, Buckets([], []), None)


def verify_all(root: Path) -> None:
    for entry in cache_root.entries(root, sizes=False):
        assert maintenance.check(root, entry, quick=True).sound


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        fill(root, files)
        jobs: dict[str, Callable[[], object]] = {
            "walk": lambda: bare_walk(folder),
            "list": lambda: cache_root.entries(root),
            "verify --quick": lambda: verify_all(root),
        }
        seconds: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(5):
            for name, job in jobs.items():
                begin = time.perf_counter()
                job()
                seconds[name].append(time.perf_counter() - begin)
    for name, times in seconds.items():
        # the same round of the walk: a busy machine slows both
        ratio = statistics.median(t / w for t, w in zip(times, seconds["walk"], strict=True))
        print(f"{name:15} {statistics.median(times):7.3f} s   {ratio:5.2f} x the walk")


if __name__ == "__main__":
    main()
