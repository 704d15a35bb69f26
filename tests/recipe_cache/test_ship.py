"""Export and import: byte for byte, or not at all."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from gaudi_launch.errors import LaunchError
from gaudi_launch.recipe_cache import ship, store
from gaudi_launch.recipe_cache.files import Findings
from gaudi_launch.recipe_cache.key import KeyParts
from tests.recipe_cache.conftest import BUCKETS, fill
from tests.recipe_cache.test_key import PARTS

HERE = KeyParts(product="gaudi2", stepping="GAUDI2", driver="1.21")


def exported(root: Path, tmp_path: Path) -> Path:
    folder = fill(root)
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.recipe").write_bytes(os.urandom(70_000))
    file = tmp_path / "key.tar.zst"
    assert ship.export(root, store.find(root, PARTS.key), file) == (5, 71_000)
    return file


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_round_trip_is_byte_for_byte(root: Path, tmp_path: Path) -> None:
    file = exported(root, tmp_path)
    other = tmp_path / "other"
    ledger = ship.import_(other, file, HERE)
    assert contents(other / PARTS.key) == contents(root / PARTS.key)
    assert ledger == replace(store.find(root, PARTS.key).ledger or ledger, folder=PARTS.key)
    assert store.look_up(other, PARTS, BUCKETS, 900).state == "hit"
    assert store.check(other, store.find(other, PARTS.key), quick=False) == Findings()


def test_another_machine_is_refused_with_what_differs(root: Path, tmp_path: Path) -> None:
    file = exported(root, tmp_path)
    with pytest.raises(LaunchError) as refused:
        ship.import_(tmp_path / "other", file, replace(HERE, product="gaudi3"))
    assert (refused.value.id, refused.value.text.values["differences"]) == (
        "cache.import_differs",
        "product gaudi2 -> gaudi3",
    )
    assert not (tmp_path / "other" / PARTS.key).exists()
    ship.import_(tmp_path / "other", file, replace(HERE, product="gaudi3"), force=True)


def test_a_key_that_is_there_is_replaced_only_by_force(root: Path, tmp_path: Path) -> None:
    file = exported(root, tmp_path)
    with pytest.raises(LaunchError) as refused:
        ship.import_(root, file, HERE)
    assert refused.value.id == "cache.import_exists"
    before = contents(root / PARTS.key)
    ship.import_(root, file, HERE, force=True)
    assert contents(root / PARTS.key) == before
    assert [p.name for p in root.iterdir() if "gone" in p.name or "import" in p.name] == []


@pytest.mark.parametrize("cut", [0, 10, 500, -20])
def test_a_damaged_file_leaves_nothing(root: Path, tmp_path: Path, cut: int) -> None:
    file = exported(root, tmp_path)
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(LaunchError):
        ship.import_(tmp_path / "other", file, HERE)
    assert [p.name for p in (tmp_path / "other").iterdir() if not p.name.endswith(".lock")] == []


def crafted(root: Path, tmp_path: Path, evil: tarfile.TarInfo, content: bytes = b"x") -> Path:
    """The first two members of a true export, then a member of the attacker's."""
    raw = zstandard.ZstdDecompressor().stream_reader(exported(root, tmp_path).open("rb")).read()
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(raw)) as source, tarfile.open(fileobj=out, mode="w") as target:
        for name in ("ledger.json", "files"):
            target.addfile(source.getmember(name), source.extractfile(name))
        evil.size = len(content) if evil.isreg() else 0
        target.addfile(evil, io.BytesIO(content))
    file = tmp_path / "evil.tar.zst"
    file.write_bytes(zstandard.ZstdCompressor().compress(out.getvalue()))
    return file


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "recipes/../../evil", "recipes", "elsewhere/evil"])
def test_names_that_lead_outside_are_refused(root: Path, tmp_path: Path, name: str) -> None:
    file = crafted(root, tmp_path, tarfile.TarInfo(name))
    with pytest.raises(LaunchError) as refused:
        ship.import_(tmp_path / "deep" / "other", file, HERE)
    assert refused.value.id == "cache.import_unsafe"
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(root: Path, tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("recipes/evil")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(LaunchError) as refused:
        ship.import_(tmp_path / "other", crafted(root, tmp_path, member), HERE)
    assert refused.value.id == "cache.import_unsafe"


def test_a_file_that_is_no_export_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "plain"
    for content in (b"", b"hello", zstandard.ZstdCompressor().compress(b"hello" * 1000)):
        file.write_bytes(content)
        with pytest.raises(LaunchError):
            ship.import_(tmp_path / "other", file, HERE)
    with pytest.raises(LaunchError):
        ship.import_(tmp_path / "other", tmp_path / "missing", HERE)


def test_sync_prints_one_rsync_and_refuses_options(root: Path) -> None:
    fill(root)
    words = ship.sync_command(root, store.find(root, PARTS.key), "me@host:/data/cache/")
    assert words == [
        "rsync", "-a", "--partial", "--mkpath",
        f"{root}/{PARTS.key}.json", f"{root}/{PARTS.key}.files", f"{root}/{PARTS.key}",
        "me@host:/data/cache/",
    ]  # fmt: skip
    for bad in ("-e sh", "--rsh=x", "", "a b"):
        with pytest.raises(LaunchError):
            ship.sync_command(root, store.find(root, PARTS.key), bad)
