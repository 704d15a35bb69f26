from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.recipes.attach import file_system, is_network
from gaudi_launch.core.recipes.cache_root import CacheEntry
from gaudi_launch.core.recipes.keeper import copy_new
from gaudi_launch.core.recipes.ledger import Ledger
from gaudi_launch.core.recipes.manifest import walk
from gaudi_launch.core.recipes.size_limits import Doomed, to_prune
from tests.support.recipes import PARTS


def test_keys_are_removed_with_their_reasons() -> None:
    found = [entry("a", 0, 1), entry("c", 50, 7), entry("d", 99, 1)]
    assert to_prune(found, now=86400 * 2 + 50, older_seconds=86400 * 2, max_bytes=7) == [
        Doomed(found[0], message("cache.prune_old", days=2)),
        Doomed(found[1], message("cache.prune_size", bytes=7)),
    ]
    damaged = replace(entry("a", 0, 9), ledger=None)
    assert to_prune([damaged], now=0, max_bytes=9) == []


def entry(key: str, used: float, size: int, busy: bool = False) -> CacheEntry:
    return CacheEntry(key, Path(key), Ledger(PARTS, key, last_used=used), 1, size, in_use=busy)


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/data/cache", "nfs4", True),
        ("/data/cache/local/x", "ext4", False),
        ("/datax", "ext4", False),
        ("/mnt/with space/c", "fuse.juicefs", True),
        ("/smb/c", "cifs", True),
        ("/ceph", "ceph", True),
    ],
)
def test_file_system_of_a_path(tmp_path: Path, path: str, kind: str, network: bool) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text(
        "/dev/sda1 / ext4 rw 0 0\nserver:/x /data/cache nfs4 rw 0 0\n"
        "/dev/sdb /data/cache/local ext4 rw 0 0\njfs /mnt/with\\040space fuse.juicefs rw 0 0\n"
        "//s/c /smb cifs rw 0 0\nmon:/ /ceph ceph rw 0 0\nbroken\n"
    )
    assert (file_system(Path(path), tmp_path), is_network(kind)) == (kind, network)


def test_no_mounts_file_is_unknown(tmp_path: Path) -> None:
    assert file_system(Path("/data"), tmp_path) == ""
    assert not is_network("")


def test_copy_brings_only_what_is_new_and_whole(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "sub").mkdir(parents=True)
    (source / "a").write_bytes(b"aa")
    (source / "sub/b").write_bytes(b"bbb")
    (source / "empty").write_bytes(b"")
    (source / "link").symlink_to("a")
    copy_new(source, target)
    assert sorted(name for name, _ in walk(target)) == ["a", "sub/b"]
    (target / "a").write_bytes(b"half-")
    copy_new(source, target)
    assert (target / "a").read_bytes() == b"aa"
