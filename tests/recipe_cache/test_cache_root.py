"""The life of a cache directory: filled, used, outgrown, interrupted, shared, adopted, removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch import locks
from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.errors import LaunchError
from gaudi_launch.messages import message
from gaudi_launch.recipe_cache import cache_root
from gaudi_launch.recipe_cache.key_locks import held, in_use, lock_path
from gaudi_launch.recipe_cache.ledger import LedgerError, ledger_path, read_ledger, write_ledger
from gaudi_launch.recipe_cache.manifest import Findings, write_list
from tests.support.places import TOP
from tests.support.recipes import BUCKETS, PARTS, fill

MORE = Buckets([*BUCKETS.prompt, [1, 512, 0]], BUCKETS.decode)


def state(root: Path, buckets: Buckets = BUCKETS, num_blocks: int | None = 900) -> tuple[str, str]:
    use = cache_root.look_up(root, PARTS, buckets, num_blocks)
    return use.state, use.because.id


def test_an_empty_root_is_a_miss(root: Path) -> None:
    assert state(root) == ("miss", "cache.miss_first")
    assert not root.exists()


def test_a_whole_fill_is_a_hit(root: Path) -> None:
    folder = fill(root)
    assert state(root) == ("hit", "cache.hit")
    ledger = read_ledger(root, PARTS.key)
    assert ledger is not None
    assert (ledger.files, ledger.bytes, ledger.filled_seconds, ledger.complete) == (
        4,
        1000,
        (12.5,),
        True,
    )
    assert folder == root / PARTS.key


def test_new_buckets_are_partial_and_join_the_ledger(root: Path) -> None:
    fill(root)
    use = cache_root.look_up(root, PARTS, MORE, 900)
    assert (use.state, use.new) == ("partial", Buckets([[1, 512, 0]], []))
    fill(root, buckets=MORE)
    assert state(root, MORE) == ("hit", "cache.hit")
    assert state(root, BUCKETS) == ("hit", "cache.hit")


def test_another_number_of_blocks_is_partial(root: Path) -> None:
    fill(root)
    assert state(root, num_blocks=901) == ("partial", "cache.other_blocks")


def test_a_miss_names_the_nearest_cache_of_the_model(root: Path) -> None:
    fill(root, replace(PARTS, software="1.20", dtype="float16"))
    fill(root, replace(PARTS, software="1.20"))
    use = cache_root.look_up(root, PARTS, BUCKETS)
    assert (use.state, use.because.render("en")) == (
        "miss",
        "A cache of this model exists, but it does not match: software 1.20 -> 1.21.",
    )


def test_recipes_that_went_away_are_a_miss(root: Path) -> None:
    for file in fill(root).iterdir():
        file.unlink()
    assert state(root) == ("miss", "cache.miss_empty")


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


def _child(root: Path, body: str) -> subprocess.Popen[str]:
    """Another launcher: a process of its own with a fill under way."""
    program = f"""
        import sys, time
        from pathlib import Path
        from gaudi_launch.recipe_cache import cache_root
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


FILLING = """with cache_root.opened(root, PARTS, BUCKETS) as session:
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
    with cache_root.opened(root, PARTS, BUCKETS) as session:
        assert session.repaired == ("b.recipe",)
        assert (session.folder / "a.recipe").read_bytes() == b"whole"
        session.finish(1.0, BUCKETS, None)
    assert state(root) == ("hit", "cache.hit")


def test_only_one_launch_fills_a_key(root: Path) -> None:
    child = _child(root, FILLING)
    try:
        assert child.stdout is not None and child.stdout.readline() == "filling\n"
        with pytest.raises(LaunchError) as refused, cache_root.opened(root, PARTS, BUCKETS):
            pass
        assert refused.value.id == "cache.in_use"
    finally:
        child.kill()
        child.communicate()


def test_a_launch_waits_for_the_fill_and_then_hits(root: Path) -> None:
    child = _child(
        root,
        """with cache_root.opened(root, PARTS, BUCKETS) as session:
            (session.folder / "a.recipe").write_bytes(b"whole")
            print("filling", flush=True)
            time.sleep(0.5)
            session.finish(0.5, BUCKETS, None)""",
    )
    assert child.stdout is not None and child.stdout.readline() == "filling\n"
    with cache_root.opened(root, PARTS, BUCKETS, wait_seconds=20) as session:
        assert not session.filling and session.ledger.buckets == BUCKETS
        # what it waited with is not kept
        with cache_root.opened(root, PARTS, MORE) as other:
            assert other.filling
    child.communicate()


def test_hits_share_one_key(root: Path) -> None:
    fill(root)
    with (
        cache_root.opened(root, PARTS, BUCKETS, 900) as one,
        cache_root.opened(root, PARTS, BUCKETS, 900) as two,
    ):
        assert (one.filling, two.filling, one.folder) == (False, False, two.folder)


def test_a_service_that_is_warm_keeps_nobody_waiting(root: Path) -> None:
    with cache_root.opened(root, PARTS, BUCKETS) as first:
        (first.folder / "a.recipe").write_bytes(b"whole")
        first.finish(1.0, BUCKETS, None)
        with (
            cache_root.opened(root, PARTS, BUCKETS) as second,
            cache_root.opened(root, PARTS, MORE) as third,
        ):
            assert (second.filling, third.filling) == (False, True)
            with pytest.raises(LaunchError), cache_root.opened(root, PARTS, MORE):
                pass
            # one that only uses it does not say that another's fill is whole
            second.finish(1.0, BUCKETS, None)
            assert state(root) == ("partial", "cache.interrupted")
            third.finish(1.0, MORE, None)
            second.finish(1.0, BUCKETS, None)
            assert cache_root.look_up(root, PARTS, MORE).state == "hit"
            with pytest.raises(LaunchError) as refused:
                cache_root.remove(root, cache_root.find(root, PARTS.key))
            assert refused.value.id == "cache.in_use"


def test_a_read_only_root_is_a_sentence(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(LaunchError) as refused, cache_root.opened(file / "recipes", PARTS, BUCKETS):
        pass
    assert refused.value.id == "cache.not_writable"


def test_a_full_disk_leaves_the_old_ledger(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(root)
    before = ledger_path(root, PARTS.key).read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LaunchError) as refused, cache_root.opened(root, PARTS, MORE, 900):
        pass
    assert refused.value.id == "cache.not_writable"
    assert ledger_path(root, PARTS.key).read_bytes() == before
    assert [p.name for p in root.iterdir() if p.name.endswith(".new")] == []


def test_a_clock_that_jumps_back_keeps_the_last_use(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root)
    before = read_ledger(root, PARTS.key)
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    fill(root)
    after = read_ledger(root, PARTS.key)
    assert before is not None and after is not None and after.last_used == before.last_used


def test_a_flat_folder_works_unchanged_and_can_be_adopted(root: Path) -> None:
    root.mkdir()
    (root / "old.recipe").write_bytes(b"old")
    use = cache_root.look_up(root, PARTS, BUCKETS)
    assert (use.state, use.folder, use.because.id) == ("partial", root, "cache.flat")
    ledger = cache_root.adopt(root, PARTS, BUCKETS)
    assert (ledger.folder, ledger.files, ledger.bytes) == (".", 1, 3)
    assert (root / "old.recipe").read_bytes() == b"old"
    with cache_root.opened(root, PARTS, BUCKETS) as session:
        assert session.folder == root
        session.finish(1.0, BUCKETS, None)
    assert state(root, num_blocks=None) == ("hit", "cache.hit")
    cache_root.remove(root, cache_root.find(root, PARTS.key))
    assert [p.name for p in root.iterdir()] == [f"{PARTS.key}.lock"]


def test_verify_finds_each_kind_of_damage(root: Path) -> None:
    folder = fill(root)
    (folder / "recipe_0.recipe").write_bytes(b"")
    (folder / "recipe_1.recipe").write_bytes(b"short")
    (folder / "recipe_2.recipe").write_bytes(bytes([9]) * 300)
    (folder / "recipe_3.recipe").unlink()
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "new.recipe").write_bytes(b"new")
    entry = cache_root.find(root, PARTS.key)
    findings = Findings(
        missing=("recipe_3.recipe",),
        empty=("recipe_0.recipe",),
        wrong_size=("recipe_1.recipe",),
        wrong_content=("recipe_2.recipe",),
        foreign=("link",),
        unlisted=("new.recipe",),
    )
    assert cache_root.check(root, entry, quick=False) == findings
    assert cache_root.check(root, entry, quick=True) == replace(findings, wrong_content=())


def test_the_list_keeps_checksums_of_files_that_did_not_change(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(root)
    (folder / "new.recipe").write_bytes(b"new")
    read: list[str] = []
    from gaudi_launch.recipe_cache import manifest

    original = manifest.checksum
    monkeypatch.setattr(manifest, "checksum", lambda path: read.append(path.name) or original(path))  # type: ignore[func-returns-value]
    assert write_list(root, PARTS.key, folder) == (5, 1003)
    assert read == ["new.recipe"]


def test_a_key_in_use_is_never_removed(root: Path) -> None:
    fill(root)
    with held(root, PARTS.key, exclusive=False), pytest.raises(LaunchError) as refused:
        cache_root.remove(root, cache_root.find(root, PARTS.key))
    assert refused.value.id == "cache.in_use"
    assert state(root) == ("hit", "cache.hit")


def test_find_takes_the_first_digits(root: Path) -> None:
    fill(root)
    assert cache_root.find(root, PARTS.key[:4]).key == PARTS.key
    for wrong in ("", "zz"):
        with pytest.raises(LaunchError) as refused:
            cache_root.find(root, wrong)
        assert refused.value.id == "cache.no_such_key"


def test_why_each_part_is_compiled(root: Path) -> None:
    """Each answer is compared as one: state, folder, new buckets, sentence, differences."""
    key, folder = PARTS.key, root / PARTS.key

    def looked(buckets: Buckets = BUCKETS, blocks: int | None = 900) -> cache_root.Use:
        return replace(cache_root.look_up(root, PARTS, buckets, blocks), ledger=None)

    older = replace(PARTS, software="", driver="1.20")
    fill(root, older)
    differences = older.differences(PARTS)
    words = message("cache.miss_differs", differences="driver 1.20 -> 1.21; software - -> 1.21")
    assert looked() == cache_root.Use("miss", key, folder, BUCKETS, words, differences)
    fill(root)
    none = Buckets([], [])
    hit = message("cache.hit", graphs=4, key=key)
    assert looked() == looked(blocks=None) == cache_root.Use("hit", key, folder, none, hit)
    partial = message("cache.partial", new=1, graphs=5)
    new = Buckets([[1, 512, 0]], [])
    assert looked(MORE) == cache_root.Use("partial", key, folder, new, partial)
    blocks = message("cache.other_blocks", was=900, now=901)
    assert looked(blocks=901) == cache_root.Use("partial", key, folder, none, blocks)
    ledger = read_ledger(root, key)
    assert ledger is not None
    write_ledger(root, replace(ledger, complete=False))
    interrupted = message("cache.interrupted", key=key)
    assert looked() == cache_root.Use("partial", key, folder, none, interrupted)
    for file in folder.iterdir():
        file.unlink()
    empty = message("cache.miss_empty", key=key)
    assert looked() == cache_root.Use("miss", key, folder, BUCKETS, empty)
    ledger_path(root, key).write_text("[")
    damaged = message("cache.miss_ledger", key=key, why="its JSON is incomplete or invalid")
    assert looked() == cache_root.Use("miss", key, folder, BUCKETS, damaged)


def test_an_adopted_folder_without_recipes_is_a_miss(root: Path) -> None:
    root.mkdir()
    (root / "old.recipe").write_bytes(b"old")
    flat = message("cache.flat", path=str(root))
    found = cache_root.look_up(root, PARTS, BUCKETS)
    assert found == cache_root.Use("partial", PARTS.key, root, BUCKETS, flat)
    cache_root.adopt(root, PARTS, BUCKETS)
    (root / "old.recipe").unlink()
    # the ledger and the list are not recipes
    assert state(root) == ("miss", "cache.miss_empty")


def test_every_key_of_a_root_the_last_used_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 100.0)
    fill(root)
    other = replace(PARTS, driver="1.20")
    monkeypatch.setattr(time, "time", lambda: 200.0)
    fill(root, other)
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


def test_the_size_of_an_adopted_folder_is_that_of_its_recipes(root: Path) -> None:
    root.mkdir()
    (root / "old.recipe").write_bytes(b"old")
    cache_root.adopt(root, PARTS, BUCKETS)
    (found,) = cache_root.entries(root)
    assert (found.folder, found.files, found.bytes) == (root, 1, 3)


def failure(do: Callable[[], object]) -> tuple[str, int, Mapping[str, object]]:
    with pytest.raises(LaunchError) as caught:
        do()
    return caught.value.id, int(caught.value.exit_code), caught.value.text.values


def test_errors_name_the_root(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir()
    path = str(root)
    nothing = ("cache.nothing_to_adopt", 2, {"path": path})
    assert failure(lambda: cache_root.adopt(root, PARTS, BUCKETS)) == nothing
    for name in ("a" * 16, "a" * 15 + "b", "c" * 16):
        (root / name).mkdir()
    several = {"key": "A", "path": path, "known": f"{'a' * 16}, {'a' * 15}b"}
    assert failure(lambda: cache_root.find(root, "A")) == ("cache.ambiguous_key", 2, several)
    every = {"key": "x", "path": path, "known": f"{'a' * 16}, {'a' * 15}b, {'c' * 16}"}
    assert failure(lambda: cache_root.find(root, "x")) == ("cache.no_such_key", 2, every)
    none = {"key": "x", "path": str(tmp_path / "none"), "known": "-"}
    assert failure(lambda: cache_root.find(tmp_path / "none", "x")) == (
        "cache.no_such_key", 2, none,
    )  # fmt: skip

    def refuse(_: Path) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    denied = {"path": path, "why": "Permission denied"}
    assert failure(lambda: cache_root.entries(root)) == ("cache.unreadable", 1, denied)
    assert not cache_root.flat_files(root)


@pytest.mark.parametrize(
    ("error", "id", "why"),
    [
        (PermissionError(13, "Permission denied"), "cache.not_shared", "Permission denied"),
        (OSError("odd"), "cache.not_writable", "odd"),
    ],
)
def test_a_root_that_cannot_be_made(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, id: str, why: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Path, "mkdir", refuse)

    def open_it() -> None:
        with cache_root.opened(root, PARTS, BUCKETS):
            raise AssertionError

    assert failure(open_it) == (id, 1, {"path": str(root), "why": why})


def test_twenty_durations_of_uses_are_kept(root: Path) -> None:
    fill(root)
    for number in range(25):
        with cache_root.opened(root, PARTS, BUCKETS) as session:
            session.finish(float(number), BUCKETS, 900)
    ledger = read_ledger(root, PARTS.key)
    assert ledger is not None
    assert ledger.used_seconds == tuple(float(number) for number in range(5, 25))
    assert ledger.filled_seconds == (12.5,)


def test_another_number_of_blocks_forgets_the_older_graphs(root: Path) -> None:
    fill(root, buckets=MORE, num_blocks=900)
    fill(root, num_blocks=901)
    ledger = read_ledger(root, PARTS.key)
    assert ledger is not None and ledger.buckets == BUCKETS


def test_what_killed_removals_and_imports_left_is_removed(root: Path) -> None:
    key = "a" * 16
    kept = [f".{key}.other", f"{key}.gone-1", ".x.gone-1"]
    for name in (*kept, f".{key}.gone-1", f".{key}.import-2"):
        (root / name / "deep").mkdir(parents=True)
    cache_root.sweep(root)
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
