"""Services of other users: by their address, and records that they left among this user's."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch import locks
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import catalogue, message, set_language, text
from gaudi_launch.services.diagnosis.endings import ended
from gaudi_launch.services.state import identity, registry, store
from gaudi_launch.services.state.identity import Identity
from gaudi_launch.services.state.registry import RecordCache
from gaudi_launch.services.state.reservation import reserve_address
from tests.support.users import own_folders, plain_english

__all__ = ["own_folders", "plain_english"]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_english: None) -> Path:
    root = tmp_path / "machine"
    (root / "run/lock").mkdir(parents=True)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(root))
    return root


def refusal(name: str) -> LaunchError:
    with pytest.raises(LaunchError) as refused:
        registry.find(name)
    return refused.value


def test_a_service_of_another_user_is_named_with_its_user(machine: Path) -> None:
    with reserve_address("127.0.0.1", 31000, "big", machine) as handles:
        assert refusal("big").id == "services.unknown"
        for handle in handles:
            locks.write_holder(
                handle, json.dumps({"pid": 7, "command": "x", "user": "ann", "service": "big"})
            )
        error = refusal("big")
        assert (error.id, error.exit_code) == ("services.other_user", ExitCode.USAGE)
        assert dict(error.text.values) == {"name": "big", "user": "ann", "pid": 7}
        assert refusal("small").id == "services.unknown"
    # it has ended, whatever its file says
    assert refusal("big").id == "services.unknown"


def test_a_record_of_another_user_hides_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine", "theirs"):
        store.write(store.make_dir(name), "state.json", {"name": name, "phase": "stopped"})
    theirs = store.service_dir("theirs") / "state.json"
    real_is_file, real_read = Path.is_file, Path.read_text

    def is_file(path: Path) -> bool:
        if path == theirs:
            raise PermissionError(13, "Permission denied")
        return real_is_file(path)

    def read_text(path: Path, *more: str, **named: str) -> str:
        if path == theirs:
            raise PermissionError(13, "Permission denied")
        return real_read(path, *more, **named)

    monkeypatch.setattr(Path, "is_file", is_file)
    monkeypatch.setattr(Path, "read_text", read_text)
    assert [service.name for service in registry.services()] == ["mine"]
    error = refusal("theirs")
    assert (error.id, error.exit_code) == ("services.foreign_record", ExitCode.FAILED)
    assert error.text.values["path"] == str(theirs.parent)
    assert str(error).endswith(f"sudo rm -r {theirs.parent}")
    assert os.getuid() == theirs.parent.lstat().st_uid


def record(alive: bool = True, **state: object) -> registry.ServiceRecord:
    return registry.ServiceRecord("chat", Path("/s/chat"), state, alive)


@pytest.mark.parametrize(
    ("state", "alive", "phase"),
    [
        ({"phase": "load"}, True, "load"),
        ({"phase": "stopped", "outcome": "stopped"}, True, "stopped"),
        ({}, True, "start"),
        ({"phase": "stopped", "outcome": "stopped"}, False, "stopped"),
        ({"phase": "failed", "outcome": "died"}, False, "failed"),
        # its launcher ended without a message
        ({"phase": "failed"}, False, "lost"),
        ({"phase": "ready", "outcome": "died"}, False, "lost"),
        ({}, False, "lost"),
    ],
)
def test_the_phase_of_a_service_whose_launcher_left_no_end_is_lost(
    state: dict[str, object], alive: bool, phase: str
) -> None:
    assert record(alive, **state).phase == phase


def test_a_reboot_is_known_by_the_boot_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = {"pid": 7, "ticks": 8, "boot": "old"}
    boots = {"old": False, "new": True, "": False}
    for boot, rebooted in boots.items():
        monkeypatch.setattr(registry, "boot_id", lambda: boot)  # noqa: B023
        assert record(launcher=launcher).rebooted is rebooted, boot
        assert record().rebooted is False
    assert record(launcher=launcher).launcher == Identity(7, 8, "old")
    assert record().launcher is None


@pytest.mark.parametrize(
    ("state", "alive", "error"),
    [
        ({}, True, ""),
        ({"error_id": "diagnose.no_such_id", "error": "as written"}, False, "as written"),
        ({"detail": "the detail"}, False, "the detail"),
        ({"error": "first", "detail": "second"}, False, "first"),
        ({"error": "", "detail": "", "outcome": "died", "status": 3}, False, ended("died", 3)),
        ({"outcome": "died", "status": "3"}, False, ""),
        ({"outcome": "stopped", "status": 3}, False, ""),
        # it failed before and runs again
        ({"restarts": 1, "status": -9}, True, ended("died", -9)),
        ({"restarts": 0, "status": -9}, True, ""),
        ({"restarts": 1, "status": -9}, False, ""),
    ],
)
def test_the_reason_of_a_failure_is_the_recorded_one_or_the_status(
    state: dict[str, object], alive: bool, error: str
) -> None:
    assert record(alive, **state).error == error


def test_a_recorded_reason_is_in_the_readers_language() -> None:
    known = record(error_id="diagnose.killed", error="wie es geschrieben wurde")
    assert known.error == text("diagnose.killed")
    set_language("zh")
    chinese = known.error
    set_language(None)
    assert chinese == catalogue("zh")["diagnose.killed"] != known.error
    # a text with places has no values in the record
    places = next(id for id, each in catalogue("en").items() if "{" in each)
    assert record(error_id=places, error="as written").error == "as written"


def test_address_and_cards_are_those_of_the_record() -> None:
    assert (record().url, record().modules) == ("", ())
    found = record(url="http://a:1", modules=[3, "x", 4])
    assert (found.url, found.modules) == ("http://a:1", (3, 4))


def test_running_services_are_listed_first_and_then_by_name() -> None:
    assert registry.services() == []
    for name in ("b", "a", "c"):
        store.write(store.make_dir(name), "state.json", {"phase": "stopped", "outcome": "stopped"})
    store.make_dir("empty")
    (store.services_dir() / "file").write_text("")
    with registry.hold("c"):
        found = [(service.name, service.alive) for service in registry.services()]
        assert found == [("c", True), ("a", False), ("b", False)]
        with pytest.raises(LaunchError) as caught, registry.hold("c"):
            pass
        assert (caught.value.exit_code, caught.value.text) == (
            ExitCode.USAGE,
            message("services.name_taken", name="c"),
        )
    with registry.hold("c"):
        pass
    unknown = refusal("x")
    assert (unknown.exit_code, unknown.text) == (
        ExitCode.USAGE,
        message("services.unknown", found="x", known="a, b, c"),
    )
    assert registry.read("not/a name") is None


def test_a_lock_answers_and_without_one_the_launcher_of_the_record_counts() -> None:
    with registry.hold("a"):
        folder = store.service_dir("a")
        assert registry.ask_lock(folder) == registry.LockAnswer(registry.Held.HELD)
    assert registry.ask_lock(folder) == registry.LockAnswer(registry.Held.FREE)
    mine = identity.of(os.getpid())
    assert mine is not None
    assert registry.runs(folder, mine) is False
    (folder / "lock").unlink()
    assert registry.ask_lock(folder) == registry.LockAnswer(
        registry.Held.UNKNOWN, "No such file or directory"
    )
    assert registry.runs(folder) is False
    assert registry.runs(folder, mine) is True
    store.write(folder, "state.json", {"launcher": mine.to_json()})
    assert registry.runs(folder) is True
    found = registry.find("a")
    assert (found.alive, found.launcher) == (True, mine)
    gone = Identity(mine.pid, mine.ticks + 1, mine.boot)
    assert registry.runs(folder, gone) is False


def test_a_damaged_record_hides_no_service() -> None:
    with registry.hold("a"):
        (store.service_dir("a") / "state.json").write_text("{")
        found = registry.find("a")
        assert (found.alive, found.state, found.phase) == (True, {}, "start")


pytestmark = pytest.mark.usefixtures("own_folders")


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
    monkeypatch.setattr(registry, "_stamp", lambda path: None)
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
