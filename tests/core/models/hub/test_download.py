"""A pull whose process has scripted answers, and what it leaves and removes in its folder."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.models.hub import download
from gaudi_launch.core.models.hub.download import (
    Listing,
    Pulled,
    PullProgress,
    find,
    forget,
    list_files,
    pull,
)
from gaudi_launch.core.models.hub.file_choice import PARTS
from gaudi_launch.core.models.hub.record import Fetched, RemoteFile, read_record, write_record
from tests.support.scripted_hosts import failed

SMALL, LARGE = RemoteFile("config.json", 2, "sha256:1"), RemoteFile("deep/m.safetensors", 5, "")
LISTING = Listing("hf", "me/m", "c0ffee", (SMALL, LARGE))


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")
                  if path.is_file())  # fmt: skip


Hubs = Callable[..., None]
Asked = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return the requests to the scripted process so far."""
    script = tmp_path / "hub.json"
    monkeypatch.setenv("SCRIPTED_HUB", str(script))
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    faster = {"_TURN_SECONDS": 0.01, "_BUSY_WAITS": (0.0, 0.0)}
    for name, value in {**faster, "_CHILD": "tests.support.scripted_hub"}.items():
        monkeypatch.setattr(download, name, value)

    def read() -> list[dict[str, Any]]:
        log = script.with_suffix(".asked")
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    return read


@pytest.fixture
def hubs(asked: Asked, tmp_path: Path) -> Hubs:
    """Let the hubs answer: ``list_hf=[...]``, ``fetch_modelscope=[...]``."""

    def script(**answers: Any) -> None:
        by_request = {name.replace("_", " "): each for name, each in answers.items()}
        (tmp_path / "hub.json").write_text(json.dumps(by_request))

    return script


FILES = [{"path": each.path, "size": each.size, "digest": each.digest} for each in (SMALL, LARGE)]
LISTED = {"revision": "c0ffee", "files": FILES}
HF = {
    "repo": "me/m", "source": "hf", "other": "modelscope", "revision": "-",
    "token": "HF_TOKEN", "login": "hf auth login",
}  # fmt: skip


def test_the_hub_that_has_a_model_answers(hubs: Hubs, asked: Asked) -> None:
    hubs(list_hf=[{"hashing": "x"}, LISTED], list_modelscope=[{"error": "gated"}])
    assert (list_files("me/m", "hf"), find("me/m")) == (LISTING, LISTING)
    request = {"do": "list", "source": "hf", "repo": "me/m", "revision": "", "repo_type": "model"}
    assert asked()[0] == request
    values = {
        **HF, "source": "modelscope", "other": "hf", "revision": "v1", "why": "",
        "token": "MODELSCOPE_API_TOKEN", "login": "modelscope login",
    }  # fmt: skip
    hubs(list_hf=[], list_modelscope=[{"error": "gated"}])
    gated = ("pull.gated", ExitCode.MODEL, values, None)
    assert failed(lambda: find("me/m", "v1", "dataset")) == gated
    requests = {(each["source"], each["revision"], each["repo_type"]) for each in asked()}
    assert requests >= {("hf", "v1", "dataset"), ("modelscope", "v1", "dataset")}


@pytest.mark.parametrize(
    ("answers", "id", "code", "why"),
    [
        ([], "pull.offline", ExitCode.FAILED, "no answer"),
        ([{"error": "no_repo", "detail": " why\nmore"}], "pull.no_repo", ExitCode.MODEL, "why"),
        ([{"error": "odd", "detail": "x" * 400}], "pull.other", ExitCode.FAILED, "x" * 300),
    ],
)
def test_a_hub_that_does_not_list(
    hubs: Hubs, answers: list[dict[str, Any]], id: str, code: ExitCode, why: str
) -> None:
    hubs(list_hf=answers)
    assert failed(lambda: list_files("me/m", "hf")) == (id, code, {**HF, "why": why}, None)


def test_addresses_names_and_disks_that_are_refused(
    hubs: Hubs, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [{**FILES[0], "path": path} for path in ("a", "../x", "/y")]
    hubs(list_hf=[{"revision": "r", "files": files}])
    unsafe = ("pull.unsafe", ExitCode.MODEL, {"repo": "me/m", "name": "'../x'"}, None)
    assert failed(lambda: list_files("me/m", "hf")) == unsafe
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")
    wrong = ("pull.endpoint", ExitCode.USAGE, {"found": "hub.example"}, None)
    assert failed(lambda: list_files("me/m", "hf")) == wrong
    assert len(asked()) == 1
    # what is in place needs no more room
    parts = tmp_path / "m" / PARTS
    parts.mkdir(parents=True)
    (parts / "n.safetensors.part").write_bytes(b"1234567")
    (tmp_path / "m" / "o.safetensors").write_bytes(b"1234")
    sizes = {"m.safetensors": 3 << 30, "n.safetensors": 10, "o.safetensors": 4}
    large = replace(LISTING, files=tuple(RemoteFile(*each) for each in sizes.items()))
    free = [(4 << 30) + 2, (4 << 30) + 3]
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(free.pop(0)))
    room = {"path": str(tmp_path / "m"), "needed": 4.0, "free": 4.0}
    full = ("pull.disk", ExitCode.MACHINE, room, None)
    assert failed(lambda: pull(large, tmp_path / "m")) == full
    assert len(asked()) == 1
    hubs(fetch_hf=[{"error": "disk"}])
    disk_full = ("pull.disk_full", ExitCode.FAILED, {"repo": "me/m"}, None)
    assert failed(lambda: pull(large, tmp_path / "m")) == disk_full


def test_verified_files_are_recorded_and_not_fetched_again(
    hubs: Hubs, asked: Asked, tmp_path: Path
) -> None:
    folder, seen = tmp_path / "m", list[PullProgress]()

    def report(progress: PullProgress) -> None:
        seen.append(progress)
        (tmp_path / f"hub.{len(progress.current)}").touch()

    hubs(fetch_hf=[{"wait": ".11"}, {"done": "config.json"}, {"done": "unknown"}])
    values = {**HF, "revision": "c0ffee", "why": ""}
    other = ("pull.other", ExitCode.FAILED, values, None)
    assert failed(lambda: pull(LISTING, folder, report=report)) == other
    record = read_record(folder)
    assert record is not None and (record.whole, [*record.files]) == (False, ["config.json"])
    part = folder / PARTS / f"{LARGE.path}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"123")
    hubs(fetch_hf=[{"wait": ".18"}, {"done": LARGE.path, "in_place": True}])
    done = pull(LISTING, folder, report=report)
    assert done == Pulled(folder, LISTING, LISTING.files, 0, (), 1)
    assert seen[0] == PullProgress(0, 7, 0, 2, "config.json", 0, 2)
    assert PullProgress(5, 7, 1, 2, LARGE.path, 3, 5) in seen
    assert seen[-1] == PullProgress(7, 7, 2, 2)
    rest = {**LISTED, "do": "fetch", "source": "hf", "repo": "me/m", "repo_type": "model"}
    assert asked()[1] == {**rest, "target": str(folder), "files": FILES[1:]}
    assert names(folder)[-2:] == ["config.json", LARGE.path]
    assert pull(LISTING, folder) == Pulled(folder, LISTING, LISTING.files, 0, (), 2)
    assert len(asked()) == 2
    newer = Listing("modelscope", "me/n", "v2", (replace(SMALL, digest="sha256:2"), LARGE))
    hubs(fetch_modelscope=[{"done": "config.json"}])
    assert pull(newer, folder).fetched == 1
    found = read_record(folder)
    assert found is not None and found.files["config.json"][1] == "sha256:2"
    assert (found.source, found.repo, found.revision, found.whole) == (
        "modelscope", "me/n", "v2", True,
    )  # fmt: skip


def test_a_busy_hub_is_asked_again(hubs: Hubs, asked: Asked, tmp_path: Path) -> None:
    hubs(fetch_hf=[{"error": "busy"}])
    busy = ("pull.busy", ExitCode.FAILED, {**HF, "revision": "c0ffee", "why": ""}, None)
    assert failed(lambda: pull(LISTING, tmp_path / "m")) == busy
    assert len(asked()) == 3


def test_leftovers_are_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("x")
    folder = tmp_path / "m"
    parts = folder / PARTS
    (parts / "deep").mkdir(parents=True)
    (folder / ".cache").mkdir()
    kept = ["deep/m.safetensors.part", "config.json.part", "resumed"]
    for name in (*kept, "old.part", "deep/old.part"):
        (parts / name).write_text("x")
    (parts / "link").symlink_to(outside / "x")
    for name in ("x.lock", "x.incomplete", "x.json"):
        (folder / ".cache" / name).write_text("x")
    removed = ["link", "old.part", "old.part", "x.incomplete", "x.lock"]
    assert sorted(download._clear(folder, (SMALL, LARGE))) == removed
    assert names(parts) == sorted(kept)
    assert names(folder / ".cache") == ["x.json"]
    shutil.rmtree(parts)
    parts.symlink_to(outside)
    assert download._clear(folder, (SMALL,)) == (PARTS,)
    assert names(outside) == ["x"]


def test_files_are_verified_again(tmp_path: Path) -> None:
    assert forget(LISTING, tmp_path / "none") == 0
    files = {"config.json": (2, "sha256:1", 5), "deep/m.safetensors": (5, "", 5), "old": (1, "", 5)}
    write_record(tmp_path, Fetched("me/m", "hf", "r", True, files))
    assert forget(LISTING, tmp_path) == 1
    del files["config.json"]
    assert read_record(tmp_path) == Fetched("me/m", "hf", "r", False, files)
