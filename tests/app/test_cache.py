"""cache: states of keys, verdicts, limits, the copy to another machine, an index for old files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch import interrupt
from gaudi_launch.app import cache, machine
from gaudi_launch.app.cache import PruneLimits
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.simulated import make
from gaudi_launch.paths import cache_dir
from gaudi_launch.recipe_cache import cache_root
from gaudi_launch.recipe_cache.key import parts_of_host
from gaudi_launch.recipe_cache.manifest import Findings
from tests.support.recipes import PARTS, fill
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

MACHINE = "simulated:hls2"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the parts of a key of the machine that the cache is compared with."""
    monkeypatch.setattr(machine, "load", lambda name: {MACHINE: make("hls2")}[name])
    return parts_of_host(make("hls2"))


def own(parts: Any) -> Any:
    """Return a key of this machine."""
    return replace(PARTS, product=parts.product, stepping=parts.stepping, driver=parts.driver)


@pytest.fixture
def root(tmp_path: Path, here: Any) -> Path:
    """Return a cache with a key of this machine, one of another, one cut off and one unknown."""
    folder = tmp_path / "recipes"
    fill(folder, own(here))
    fill(folder, replace(own(here), product="other"))
    with cache_root.opened(folder, replace(own(here), model="cut"), Buckets([[1, 1, 1]], []), 1):
        pass
    return folder


def test_the_root_is_the_given_one_else_the_users(own_folders: Path) -> None:
    assert cache.root_of(Path("/given")) == Path("/given")
    assert cache.root_of(None) == cache_dir() / "recipes"


def test_each_key_has_a_state(root: Path, here: Any) -> None:
    (root / "file.recipe").write_bytes(b"")
    found = cache.listing(root, MACHINE)
    states = {
        (each.entry.ledger.parts.product, each.entry.ledger.parts.model): each.state
        for each in found.keys
        if each.entry.ledger is not None
    }
    assert states == {
        (here.product, PARTS.model): "hit",
        ("other", PARTS.model): "miss",
        (here.product, "cut"): "partial",
    }
    assert (found.root, found.flat) == (root, True)
    key = own(here).key
    (cache_root.find(root, key).folder.parent / "x").touch()
    entry = replace(cache_root.find(root, key), ledger=None, trouble="damaged")
    assert cache.CachedKey(entry, ()).state == "unknown"


def test_a_key_without_an_index_is_an_error(
    root: Path, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = own(here).key
    entry, ledger = cache.indexed(root, key)
    assert (entry.key, ledger.parts) == (key, own(here))
    damaged = replace(entry, ledger=None, trouble="cut off")
    monkeypatch.setattr(cache_root, "find", lambda root, key: damaged)
    with refused("cache.no_ledger", ExitCode.FAILED, key=key, why="cut off"):
        cache.indexed(root, key)


def test_a_damaged_file_is_found(root: Path, here: Any) -> None:
    key = own(here).key
    [sound] = cache.verify(root, key, quick=False)
    assert sound.findings.sound
    file = cache_root.find(root, key).folder / "recipe_2.recipe"
    content = file.read_bytes()
    file.write_bytes(b"x" * len(content))
    # sizes alone do not show it
    assert cache.verify(root, key, quick=True)[0].findings.sound
    [bad] = cache.verify(root, key, quick=False)
    assert bad.findings == Findings(wrong_content=(file.name,))
    assert len(cache.verify(root, None, quick=True)) == 3


def test_keys_beyond_the_limits_are_removed_on_request(root: Path, here: Any) -> None:
    with refused("cache.prune_nothing_asked", ExitCode.USAGE):
        cache.prune(root, PruneLimits(), remove=True)
    filled = {each.key for each in cache_root.entries(root) if each.bytes}
    shown = cache.prune(root, PruneLimits(max_size="0"), remove=False)
    assert ({each.entry.key for each in shown.doomed}, shown.removed) == (filled, ())
    assert len(cache_root.entries(root)) == 3
    done = cache.prune(root, PruneLimits(max_size="0"), remove=True)
    assert {*done.removed} == filled
    assert not any(each.bytes for each in cache_root.entries(root))


def test_a_copy_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    status = {"code": 0}

    def attend(words: Any) -> int:
        ran.append(words)
        if status["code"] < 0:
            raise FileNotFoundError(2, "No such file", "rsync")
        return status["code"]

    monkeypatch.setattr(interrupt, "attend", attend)
    cache.sync(["rsync", "a", "b"])
    assert ran == [["rsync", "a", "b"]]
    status["code"] = 12
    with refused("cache.sync_failed", ExitCode.FAILED, why="rsync: 12"):
        cache.sync(["rsync"])
    status["code"] = -1
    with refused("cache.sync_failed", ExitCode.FAILED, why="[Errno 2] No such file: 'rsync'"):
        cache.sync(["rsync"])


def test_the_command_of_a_copy_names_the_key(root: Path, here: Any) -> None:
    words = cache.sync_command(root, own(here).key[:12], "user@host:/recipes")
    assert words[0] == "rsync" and words[-1].startswith("user@host:/recipes")
    assert any(own(here).key in word for word in words)


def test_an_index_for_old_files_claims_no_bucket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    adopted: list[Any] = []
    prepared = SimpleNamespace(plan=lambda: "plan", host="host")
    monkeypatch.setattr("gaudi_launch.app.prepare.prepare", lambda options: prepared)
    monkeypatch.setattr("gaudi_launch.recipe_cache.key.parts_of", lambda *words: words)
    monkeypatch.setattr(cache_root, "adopt", lambda *words: adopted.append(words) or "ledger")  # type: ignore[func-returns-value]
    options = LaunchOptions(model="m", cache_dir=str(tmp_path))
    found: Any = cache.adopt(options)
    assert found == (tmp_path, "ledger")
    assert cache.adopt(LaunchOptions(model="m"))[0] == cache_dir() / "recipes"
    assert adopted[0] == (tmp_path, ("plan", "host"), Buckets([], []))
    with pytest.raises(LaunchError):
        cache.indexed(tmp_path, "none")
