"""The list of a pack: whatever differs from it is found before anything else happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.extensions.offline import pack_manifest
from gaudi_launch.extensions.offline.pack_manifest import (
    Manifest,
    PackEngine,
    PackFile,
    PackModel,
    PackTarget,
)
from tests.support.packs import made
from tests.support.refusals import failing


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return made(tmp_path / "pack")


def refused(work: Callable[[], object]) -> tuple[str, int]:
    with pytest.raises(LaunchError) as caught:
        work()
    assert str(caught.value).count(". ") >= 1
    return caught.value.id, int(caught.value.exit_code)


def damage(pack: Path) -> None:
    (pack / "model/weights").write_bytes(b"1234567_9")


def shorten(pack: Path) -> None:
    (pack / "model/weights").write_bytes(b"1234")


def remove(pack: Path) -> None:
    (pack / "model/weights").unlink()


def add(pack: Path) -> None:
    (pack / "model/other").write_bytes(b"")


def link(pack: Path) -> None:
    (pack / "model/weights").rename(pack.parent / "weights")
    (pack / "model/weights").symlink_to(pack.parent / "weights")


def link_a_folder(pack: Path) -> None:
    (pack / "more").symlink_to(pack.parent)


@pytest.mark.parametrize(
    ("change", "id", "name"),
    [
        (damage, "offline.damaged", "model/weights"),
        (shorten, "offline.damaged", "model/weights"),
        (remove, "offline.missing", "model/weights"),
        (add, "offline.additional", "model/other"),
        (link, "offline.damaged", "model/weights"),
        (link_a_folder, "offline.additional", "more"),
    ],
)
def test_a_pack_that_differs_is_refused(
    pack: Path, change: Callable[[Path], None], id: str, name: str
) -> None:
    manifest = pack_manifest.read_folder(pack)
    change(pack)
    with failing(id, ExitCode.FAILED) as caught:
        pack_manifest.verify(pack, manifest)
    assert {name, str(pack)} <= {*map(str, caught.value.text.values.values())}
    assert "Nothing was installed." in str(caught.value)


@pytest.mark.parametrize(
    ("content", "id"),
    [
        (b"", "offline.not_a_pack"),
        (b"[1]", "offline.not_a_pack"),
        (b'{"kind": "other"}', "offline.not_a_pack"),
        (b'{"kind": "gaudi-launch offline pack", "schema": 2}', "offline.schema"),
        (b'{"kind": "gaudi-launch offline pack", "schema": 1}', "offline.damaged"),
    ],
)
def test_another_file_is_not_a_list(pack: Path, content: bytes, id: str) -> None:
    (pack / "manifest.json").write_bytes(content)
    assert refused(lambda: pack_manifest.read_folder(pack))[0] == id


def with_path(manifest: Manifest, path: str) -> bytes:
    """Return a list with a valid digest that has this path."""
    first, *others = manifest.files
    return json.dumps(
        replace(manifest, files=(replace(first, path=path), *others)).to_json()
    ).encode()


@pytest.mark.parametrize("path", ["/etc/passwd", "../other", "model/../../other", "a\0b"])
def test_a_path_outside_of_the_pack_is_refused(pack: Path, path: str) -> None:
    content = with_path(pack_manifest.read_folder(pack), path)
    assert refused(lambda: pack_manifest.read(content, "pack"))[0] == "offline.damaged"


def test_a_folder_without_a_list_is_not_a_pack(tmp_path: Path) -> None:
    assert refused(lambda: pack_manifest.read_folder(tmp_path)) == (
        "offline.not_a_pack",
        ExitCode.USAGE,
    )


FULL = Manifest(
    "0.1.0",
    "2026-01-02T03:04:05Z",
    PackEngine("e", "1", "gaudi", False, "image:1", "image.tar"),
    PackModel("m", "models/é", "me/m", "v1", True),
    PackTarget("3.11", "x86_64", "manylinux"),
    ("recipes/a.tar",),
    (PackFile("a", 1, "00"), PackFile("b/c", 2, "11")),
)


def rewritten(**entries: object) -> bytes:
    """Return a list with other entries and a digest that is right."""
    document = {**FULL.to_json(), **entries}
    for name in ("bytes", "digest"):
        del document[name]
    document["digest"] = pack_manifest._digest(document)
    return json.dumps(document).encode()


FILE = {"path": "a", "size": 1, "sha256": "0"}


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        ({"files": [{**FILE, "path": 1}]}, "manifest.json"),
        ({"files": [{**FILE, "size": "1"}]}, "manifest.json"),
        ({"files": 1}, "manifest.json"),
        ({"recipes": [None]}, "manifest.json"),
        ({"recipes": ["/x"]}, "'/x'"),
        ({"model": {"name": "m", "folder": "../x"}}, "'../x'"),
        ({"engine": {"name": "e", "version": "1", "kind": "x", "image_file": "/x"}}, "'/x'"),
        ({"engine": {}}, "manifest.json"),
    ],
)
def test_a_list_that_was_made_to_mislead(entries: dict[str, object], name: str) -> None:
    """Its digest shows damage, not who made it."""
    with pytest.raises(LaunchError) as caught:
        pack_manifest.read(rewritten(**entries), "pack")
    error = caught.value
    found = (error.id, error.exit_code, error.text.values)
    assert found == ("offline.damaged", ExitCode.FAILED, {"path": "pack", "name": name})
