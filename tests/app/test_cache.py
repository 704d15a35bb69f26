"""cache: states of keys, verdicts, limits, the copy to another machine, an index for old files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch import interrupt
from gaudi_launch.app import cache, machine
from gaudi_launch.buckets.bucket_list import Buckets
from gaudi_launch.errors import ExitCode
from gaudi_launch.host.simulated import make
from gaudi_launch.recipe_cache import cache_root
from gaudi_launch.recipe_cache.key import parts_of_host
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
