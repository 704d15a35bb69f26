from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.errors import LaunchError
from gaudi_launch.messages import message
from gaudi_launch.recipe_cache.cache_root import CacheEntry
from gaudi_launch.recipe_cache.ledger import Ledger
from gaudi_launch.recipe_cache.location import copy_new, file_system, is_network
from gaudi_launch.recipe_cache.manifest import walk
from gaudi_launch.recipe_cache.size_limits import (
    LEAST_MIB,
    Doomed,
    parse_age,
    parse_size,
    size_limit,
    to_prune,
)
from tests.support.recipes import PARTS

GIB = 1 << 30


@pytest.mark.parametrize(
    ("graphs", "free", "held", "measured", "mib", "too_small", "reason"),
    [
        (100, 1000 * GIB, 0, 0, 16384, False, "cache.limit_assumed"),
        (1000, 1000 * GIB, 0, 0, 128000, False, "cache.limit_assumed"),
        (1000, 10 * GIB, 0, 0, 9216, True, "cache.limit_assumed"),
        (400, 1000 * GIB, 20 * GIB, 100, 163840, False, "cache.limit_measured"),
    ],
)
def test_size_limit(
    graphs: int, free: int, held: int, measured: int, mib: int, too_small: bool, reason: str
) -> None:
    limit = size_limit(graphs, free, held, measured)
    assert (limit.mib, limit.too_small, limit.reason.id) == (mib, too_small, reason)


def test_the_reason_of_a_limit_has_its_numbers() -> None:
    # 10 MiB and a third in three graphs
    assert size_limit(2, 1 << 40, 31 << 20, 3).reason == message(
        "cache.limit_measured", graphs=2, per_graph=10.3, room=943749
    )
    assert size_limit(0, 1 << 40, 5, 0).reason == message(
        "cache.limit_assumed", graphs=0, per_graph=64, room=943718
    )
    # exactly as much as is needed
    limit = size_limit(1, 0, LEAST_MIB << 20, 0)
    assert (limit.mib, limit.too_small) == (LEAST_MIB, False)
    assert size_limit(1, 0, (LEAST_MIB << 20) - 1, 0).too_small
    assert size_limit(1, 0).mib == 1


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


def test_prune_by_size_takes_the_least_recently_used_and_none_in_use() -> None:
    found = [
        entry("a", 30, 50),
        entry("b", 10, 50, busy=True),
        entry("c", 20, 50),
        entry("d", 40, 50),
    ]
    assert [d.entry.key for d in to_prune(found, now=100, max_bytes=60)] == ["c", "a"]
    assert to_prune(found, now=100, max_bytes=150) == []


def test_sizes_and_ages() -> None:
    assert [parse_size(t) for t in ("200G", "1.5K", "7", "1MiB", "2TB")] == [
        200 * GIB,
        1536,
        7,
        1 << 20,
        2 << 40,
    ]
    assert [parse_age(t) for t in ("30d", "12h", "1.5min")] == [2592000, 43200, 90]
    assert [parse_age(t) for t in ("2w", " 1s ")] == [1209600, 1]
    assert [parse_size(t) for t in (" 2M ", "3B")] == [2 << 20, 3]
    for bad in ("", "G", "-1G", "1X", "1e3", "²G", "٣G", "٣d"):
        for parse, id in ((parse_size, "cache.bad_size"), (parse_age, "cache.bad_age")):
            with pytest.raises(LaunchError) as error:
                parse(bad)
            found = (error.value.id, error.value.exit_code, error.value.text.values)
            assert found == (id, 2, {"found": bad})


def test_file_systems_without_reliable_locks() -> None:
    network = ["nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "gpfs",
               "beegfs", "afs", "9p", "fuse.sshfs", "fuse"]  # fmt: skip
    local = ["ext4", "xfs", "tmpfs", "overlay", "fuse.fuse-overlayfs", "fuseblk", "fusectl", "",
             "xfuse"]  # fmt: skip
    assert [kind for kind in (*network, *local) if is_network(kind)] == network


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
