"""The list of a pack: whatever differs from it is found before anything else happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.offline import pack_manifest
from gaudi_launch.offline.pack_manifest import (
    Manifest,
    PackEngine,
    PackFile,
    PackModel,
    PackTarget,
)
from tests.support.packs import made


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return made(tmp_path / "pack")


def refused(work: Callable[[], object]) -> tuple[str, int]:
    with pytest.raises(LaunchError) as caught:
        work()
    assert str(caught.value).count(". ") >= 1
    return caught.value.id, int(caught.value.exit_code)


def test_a_list_is_read_as_it_was_written(pack: Path) -> None:
    manifest = pack_manifest.read_folder(pack)
    assert manifest.to_json() == json.loads((pack / "manifest.json").read_text())
    assert manifest.parts() == {"model": (2, 12), "wheels": (1, 5)}
    assert manifest.size == 17
    pack_manifest.verify(pack, manifest)


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
    with pytest.raises(LaunchError) as caught:
        pack_manifest.verify(pack, manifest)
    assert (caught.value.id, int(caught.value.exit_code)) == (id, ExitCode.FAILED)
    assert name in str(caught.value)
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


def test_a_changed_list_is_damaged(pack: Path) -> None:
    text = (pack / "manifest.json").read_text()
    (pack / "manifest.json").write_text(text.replace('"size": 9', '"size": 8'))
    assert refused(lambda: pack_manifest.read_folder(pack))[0] == "offline.damaged"


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


def test_every_field_of_a_list_is_read_again() -> None:
    content = json.dumps(FULL.to_json()).encode()
    assert pack_manifest.read(content, "pack") == FULL
    # its digest does not depend on the order of its entries
    reordered = dict(reversed([*FULL.to_json().items()]))
    assert pack_manifest.read(json.dumps(reordered).encode(), "pack") == FULL
    # packs of earlier versions are read
    digest = "b3d2aa5146fb39109df6d3bcf22749f66362c137a1d320c60956cb02e2a2e250"
    assert FULL.to_json()["digest"] == digest


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
        ({"files": [{**FILE, "path": 1}]}, "1"),
        ({"files": [{**FILE, "size": "1"}]}, "'1'"),
        ({"files": [{**FILE, "more": 1}]}, "manifest.json"),
        ({"files": 1}, "manifest.json"),
        ({"recipes": [None]}, "None"),
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


def failure(work: Callable[[], object]) -> tuple[str, ExitCode, object]:
    with pytest.raises(LaunchError) as caught:
        work()
    return caught.value.id, caught.value.exit_code, caught.value.text.values


def test_the_errors_name_the_pack_and_what_differs(pack: Path) -> None:
    usage, failed = ExitCode.USAGE, ExitCode.FAILED
    for content in (b"[", b'{"kind": "other"}'):
        not_a_pack = ("offline.not_a_pack", usage, {"path": "p"})
        assert failure(lambda: pack_manifest.read(content, "p")) == not_a_pack  # noqa: B023
    other = json.dumps({"kind": pack_manifest.KIND, "schema": 2}).encode()
    schema = ("offline.schema", usage, {"path": "p", "found": "2"})
    assert failure(lambda: pack_manifest.read(other, "p")) == schema
    manifest = pack_manifest.read_folder(pack)
    (pack / "model/weights").write_bytes(b"1234567_9")
    path = str(pack)
    damaged = ("offline.damaged", failed, {"path": path, "name": "model/weights"})
    assert failure(lambda: pack_manifest.verify(pack, manifest)) == damaged
    (pack / "x").touch()
    (pack / "w").touch()
    additional = ("offline.additional", failed, {"path": path, "count": 2, "first": "w"})
    assert failure(lambda: pack_manifest.verify(pack, manifest)) == additional
    for name in ("model/weights", "model/config"):
        (pack / name).unlink()
    missing = ("offline.missing", failed, {"path": path, "count": 2, "first": "model/config"})
    assert failure(lambda: pack_manifest.verify(pack, manifest)) == missing


def test_what_is_read_is_counted(pack: Path) -> None:
    read: list[int] = []
    found = pack_manifest.listed(pack, read.append)
    assert sorted(read) == [3, 5, 9]
    assert [file.path for file in found] == ["model/config", "model/weights", "wheels/a.whl"]
    read.clear()
    manifest = pack_manifest.read_folder(pack)
    pack_manifest.verify(pack, replace(manifest, files=found), read.append)
    assert read == [3, 9, 5]
