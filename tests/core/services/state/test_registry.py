"""Services of other users: by their address, and records that they left among this user's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gaudi_launch.core.base import locks
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.services.state import chosen, registry, store
from gaudi_launch.core.services.state.registry import RecordCache
from gaudi_launch.core.services.state.reservation import reserve_address
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
        chosen.find(name)
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


pytestmark = pytest.mark.usefixtures("own_folders")


def test_a_folder_without_a_record_is_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    store.make_dir("a")
    cache = RecordCache()
    assert (cache.services(), cache._known) == ([], {})
    # a record that was made after its stamp was asked for
    store.write(store.make_dir("a"), "state.json", {})
    monkeypatch.setattr(registry, "_stamp", lambda path: None)
    assert [service.name for service in cache.services()] == ["a"]
    assert cache._known == {}
