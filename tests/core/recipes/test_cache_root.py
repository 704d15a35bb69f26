"""The life of a cache directory: filled, used, outgrown, interrupted, shared, adopted, removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base import locks
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.recipes import cache_root, keeper, maintenance
from gaudi_launch.core.recipes.key_locks import held, in_use, lock_path
from gaudi_launch.core.recipes.ledger import LedgerError, ledger_path, read_ledger
from tests.support.places import TOP
from tests.support.recipes import BUCKETS, PARTS, fill
from tests.support.refusals import refusal

MORE = Buckets([*BUCKETS.prompt, [1, 512, 0]], BUCKETS.decode)


def state(root: Path, buckets: Buckets = BUCKETS, num_blocks: int | None = 900) -> tuple[str, str]:
    use = cache_root.look_up(root, PARTS, buckets, num_blocks)
    return use.state, use.because.id


def test_another_number_of_blocks_is_partial(root: Path) -> None:
    fill(root)
    assert state(root, num_blocks=901) == ("partial", "cache.other_blocks")


@pytest.mark.parametrize("keep", [0, 1, 100])
def test_a_half_written_ledger_is_a_miss_and_the_next_fill_mends_it(root: Path, keep: int) -> None:
    fill(root)
    path = ledger_path(root, PARTS.key)
    path.write_bytes(path.read_bytes()[:keep])
    assert state(root) == ("miss", "cache.miss_ledger")
    fill(root)
    assert state(root) == ("hit", "cache.hit")


def test_a_ledger_cannot_point_outside_its_root(root: Path) -> None:
    fill(root)
    path = ledger_path(root, PARTS.key)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"folder": "../../etc"}))
    with pytest.raises(LedgerError):
        read_ledger(root, PARTS.key)


def test_a_full_disk_leaves_the_old_ledger(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root)
    before = ledger_path(root, PARTS.key).read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LaunchError) as refused, keeper.opened(root, PARTS, MORE, 900):
        pass
    assert refused.value.id == "cache.not_writable"
    assert ledger_path(root, PARTS.key).read_bytes() == before
    assert [p.name for p in root.iterdir() if p.name.endswith(".new")] == []


def test_a_flat_folder_works_unchanged_and_can_be_adopted(root: Path) -> None:
    root.mkdir()
    (root / "old.recipe").write_bytes(b"old")
    use = cache_root.look_up(root, PARTS, BUCKETS)
    assert (use.state, use.folder, use.because.id) == ("partial", root, "cache.flat")
    ledger = maintenance.adopt(root, PARTS, BUCKETS)
    assert (ledger.folder, ledger.files, ledger.bytes) == (".", 1, 3)
    assert (root / "old.recipe").read_bytes() == b"old"
    with keeper.opened(root, PARTS, BUCKETS) as session:
        assert session.folder == root
        session.finish(1.0, BUCKETS, None)
    assert state(root, num_blocks=None) == ("hit", "cache.hit")
    maintenance.remove(root, maintenance.find(root, PARTS.key))
    assert [p.name for p in root.iterdir()] == [f"{PARTS.key}.lock"]


def test_every_key_of_a_root_the_last_used_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(PARTS, driver="1.20")
    for at, parts in ((100.0, PARTS), (200.0, other)):
        monkeypatch.setattr(time, "time", lambda: at)  # noqa: B023
        fill(root, parts)
    (root / ("a" * 16)).mkdir()
    (root / ("a" * 16) / "x.recipe").write_bytes(b"xy")
    (root / f"{'b' * 16}.json").write_text("[")
    # a lock, what a killed removal left, and a flat recipe
    (root / f"{'c' * 16}.lock").touch()
    (root / f".{'d' * 16}.gone-1").mkdir()
    (root / "flat.recipe").write_bytes(b"x")
    damaged = "its JSON is incomplete or invalid"
    with held(root, PARTS.key, exclusive=False):
        found = cache_root.entries(root)
    assert found == [
        cache_root.CacheEntry(
            other.key, root / other.key, read_ledger(root, other.key), 4, 1000, "", False
        ),
        cache_root.CacheEntry(
            PARTS.key, root / PARTS.key, read_ledger(root, PARTS.key), 4, 1000, "", True
        ),
        cache_root.CacheEntry("a" * 16, root / ("a" * 16), None, 1, 2, "it has no ledger"),
        cache_root.CacheEntry("b" * 16, root / ("b" * 16), None, 0, 0, damaged),
    ]
    assert [each.last_used for each in found] == [200.0, 100.0, 0.0, 0.0]
    assert [each.bytes for each in cache_root.entries(root, sizes=False)] == [0] * 4


def test_errors_name_the_root(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    path = str(root)
    nothing = ("cache.nothing_to_adopt", 2, {"path": path})
    assert refusal(lambda: maintenance.adopt(root, PARTS, BUCKETS)) == nothing
    for name in ("a" * 16, "a" * 15 + "b", "c" * 16):
        (root / name).mkdir()
    several = {"key": "A", "path": path, "known": f"{'a' * 16}, {'a' * 15}b"}
    assert refusal(lambda: maintenance.find(root, "A")) == ("cache.ambiguous_key", 2, several)
    every = {"key": "x", "path": path, "known": f"{'a' * 16}, {'a' * 15}b, {'c' * 16}"}
    assert refusal(lambda: maintenance.find(root, "x")) == ("cache.no_such_key", 2, every)
    none = {"key": "x", "path": str(tmp_path / "none"), "known": "-"}
    assert refusal(lambda: maintenance.find(tmp_path / "none", "x")) == (
        "cache.no_such_key", 2, none,
    )  # fmt: skip

    long = tmp_path / ("x" * 300)
    values = {"path": str(long), "why": "File name too long"}
    assert refusal(lambda: cache_root.entries(long)) == ("cache.unreadable", 1, values)
    assert not cache_root.flat_files(long)

    def open_it() -> None:
        with keeper.opened(long, PARTS, BUCKETS):
            raise AssertionError

    assert refusal(open_it) == ("cache.not_writable", 1, values)


def test_what_killed_removals_and_imports_left_is_removed(root: Path) -> None:
    key = "a" * 16
    kept = [f".{key}.other", f"{key}.gone-1", ".x.gone-1"]
    for name in (*kept, f".{key}.gone-1", f".{key}.import-2"):
        (root / name / "deep").mkdir(parents=True)
    maintenance.sweep(root)
    assert sorted(path.name for path in root.iterdir()) == sorted(kept)


KEY = "0123456789abcdef"


def test_a_lock_that_another_user_wrote_is_taken_by_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mode 0644 lets the others do, whom flock(2) asks for no more."""
    lock_path(tmp_path, KEY).touch()
    real_open = os.open

    def unwritable(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied")
        return real_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", unwritable)
    with held(tmp_path, KEY, exclusive=True):
        assert (in_use(tmp_path, KEY, fill=True), in_use(tmp_path, "0" * 16)) == (False, False)
        assert in_use(tmp_path, KEY)
        with pytest.raises(LaunchError) as refused, held(tmp_path, KEY, exclusive=False):
            pass
        assert refused.value.id == "cache.in_use"
    assert not in_use(tmp_path, KEY)


def test_a_lock_is_not_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    lock_path(tmp_path, KEY).symlink_to(tmp_path / "other")
    with pytest.raises(LaunchError) as refused, held(tmp_path, KEY, exclusive=True):
        pass
    values = {"path": str(tmp_path), "why": "Too many levels of symbolic links"}
    assert (refused.value.id, refused.value.exit_code) == ("cache.no_lock", 1)
    assert refused.value.text.values == values


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> bool:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(locks, "try_take", fail)
    with pytest.raises(LaunchError) as refused, held(tmp_path, KEY, exclusive=True):
        pass
    values = {"path": str(tmp_path), "why": "No locks available"}
    assert (refused.value.id, refused.value.exit_code) == ("cache.no_lock", 1)
    assert refused.value.text.values == values
    assert not in_use(tmp_path, KEY)


def _child(root: Path, body: str) -> subprocess.Popen[str]:
    """Another launcher: a process of its own with a fill under way."""
    program = f"""
        import sys, time
        from pathlib import Path
        from gaudi_launch.core.recipes import cache_root, keeper, maintenance
        from tests.support.recipes import BUCKETS
        from tests.support.recipes import PARTS
        root = Path(sys.argv[1])
        {body}
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), os.fspath(root)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=TOP,
    )


FILLING = """with keeper.opened(root, PARTS, BUCKETS) as session:
            (session.folder / "a.recipe").write_bytes(b"whole")
            (session.folder / "b.recipe").write_bytes(b"")
            print("filling", flush=True)
            time.sleep(60)"""


def test_kill_in_the_middle_of_a_fill_never_claims_a_hit(root: Path) -> None:
    child = _child(root, FILLING)
    assert child.stdout is not None and child.stdout.readline() == "filling\n"
    assert in_use(root, PARTS.key)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert not in_use(root, PARTS.key)
    assert state(root) == ("partial", "cache.interrupted")
    with keeper.opened(root, PARTS, BUCKETS) as session:
        assert session.repaired == ("b.recipe",)
        assert (session.folder / "a.recipe").read_bytes() == b"whole"
        session.finish(1.0, BUCKETS, None)
    assert state(root) == ("hit", "cache.hit")
