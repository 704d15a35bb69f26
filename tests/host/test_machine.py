"""The machine of a command: this one, a simulated one, a snapshot file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host import snapshot
from gaudi_launch.host.machine import check_root, load, load_document
from tests.support.refusals import failing

BOXES = "hls2, gaudi2e-8, gaudi2e-4, gaudi3-oam, gaudi3-pcie"


def test_a_snapshot_file_is_a_machine_with_that_origin(tmp_path: Path) -> None:
    host = load("simulated:gaudi2e-4")
    path = tmp_path / "s.json"
    path.write_text(json.dumps(snapshot.to_json(host)))
    assert load(str(path)) == replace(host, origin=f"snapshot {path}")
    assert host.origin == "simulated:gaudi2e-4"
    assert load_document(str(path))["kind"] == "gaudi-launch snapshot"


def test_a_document_that_is_no_object_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    found = []
    for text in ("[1]", "{"):
        path.write_text(text)
        with pytest.raises(LaunchError) as caught:
            load_document(str(path))
        found.append((caught.value.id, caught.value.exit_code, caught.value.text.values))
    reasons = (
        "not an object",
        "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    )
    assert found == [
        ("host.snapshot_json", ExitCode.USAGE, {"path": str(path), "reason": reason})
        for reason in reasons
    ]


@pytest.mark.parametrize(
    ("content", "id"),
    [
        (b"", "host.snapshot_json"),
        (b"{", "host.snapshot_json"),
        (b"[1]", "host.snapshot_json"),
        (b"[" * 100_000, "host.snapshot_json"),
        (b"\xff\xfe", "host.snapshot_file"),
        (b"{}", "host.snapshot_field"),
    ],
)
def test_a_file_that_is_no_snapshot(content: bytes, id: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with failing(id, ExitCode.USAGE):
        load(str(path))


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere.json", "No such file or directory"),
        ("/", "Is a directory"),
        ("a\0b", "embedded null byte"),
        ("", "Is a directory"),
    ],
)
def test_a_snapshot_that_cannot_be_read(path: str, reason: str) -> None:
    with failing("host.snapshot_file", ExitCode.USAGE) as caught:
        load(path)
    known = ", ".join(f"simulated:{name}" for name in BOXES.split(", "))
    assert caught.value.text.values == {"path": path, "reason": reason, "known": known}


def test_a_root_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "gone"))
    with failing("host.root", ExitCode.USAGE) as caught:
        load()
    assert caught.value.text.values == {"path": str(tmp_path / "gone")}


def test_a_root_that_is_a_folder_or_of_another_machine_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    check_root(None)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "gone"))
    check_root("simulated:hls2")
