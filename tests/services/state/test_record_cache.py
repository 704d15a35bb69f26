"""State files are parsed again only when they changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.services.state import identity, record_cache, registry, store
from gaudi_launch.services.state.identity import Identity
from gaudi_launch.services.state.record_cache import RecordCache


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_it_lists_what_the_registry_lists() -> None:
    for name in ("b", "a", "c"):
        store.write(store.make_dir(name), "state.json", {"name": name, "phase": "ready"})
    cache = RecordCache()
    with registry.hold("c"):
        assert cache.services() == registry.services() == cache.services()
        assert [service.name for service in cache.services()] == ["c", "a", "b"]
    # the launcher ended; its file did not change
    assert cache.services() == registry.services()


def test_a_changed_file_is_read_and_an_unchanged_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = store.make_dir("a")
    store.write(folder, "state.json", {"phase": "start"})
    read: list[str] = []
    whole = registry.read

    def counted(name: str) -> Any:
        read.append(name)
        return whole(name)

    monkeypatch.setattr(registry, "read", counted)
    cache = RecordCache()
    assert [cache.services()[0].state["phase"] for _ in range(3)] == ["start"] * 3
    assert read == ["a"]
    store.write(folder, "state.json", {"phase": "ready"})
    assert cache.services()[0].state["phase"] == "ready"
    assert read == ["a", "a"]


def test_a_launcher_without_a_lock_is_looked_for_by_its_record() -> None:
    mine = identity.of(os.getpid())
    assert mine is not None
    store.write(store.make_dir("a"), "state.json", {"launcher": mine.to_json()})
    asked: list[Identity | None] = []
    cache = RecordCache()
    assert [service.alive for service in cache.services()] == [True]

    def runs(folder: Path, launcher: Identity | None) -> bool:
        asked.append(launcher)
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "runs", runs)
        assert [service.alive for service in cache.services()] == [False]
    assert asked == [mine]


def test_a_folder_without_a_record_is_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    store.make_dir("a")
    cache = RecordCache()
    assert (cache.services(), cache._known) == ([], {})
    # a record that was made after its stamp was asked for
    store.write(store.make_dir("a"), "state.json", {})
    monkeypatch.setattr(record_cache, "_stamp", lambda path: None)
    assert [service.name for service in cache.services()] == ["a"]
    assert cache._known == {}


def test_a_removed_service_and_a_missing_folder() -> None:
    store.write(store.make_dir("a"), "state.json", {})
    cache = RecordCache()
    assert len(cache.services()) == 1
    shutil.rmtree(store.services_dir() / "a")
    assert cache.services() == []
    shutil.rmtree(store.services_dir())
    assert cache.services() == []
