"""A pack as one file: complete and as listed, or refused."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.extensions.offline import pack_archive, pack_manifest
from tests.support.packs import made
from tests.support.refusals import raising


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path / "folder")


@pytest.fixture
def archive(folder: Path, tmp_path: Path) -> Path:
    target = tmp_path / "pack.tar"
    pack_archive.write(folder, target, pack_manifest.read_folder(folder))
    return target


def rewritten(archive: Path, change: str) -> None:
    """Write the archive again with one change."""
    with tarfile.open(archive) as tar:
        members = [(each, (tar.extractfile(each) or io.BytesIO()).read()) for each in tar]
    with tarfile.open(archive, "w") as tar:
        for member, content in members:
            if member.name == "model/weights":
                if change == "missing":
                    continue
                if change == "damaged":
                    content = b"1234567_9"
                if change == "link":
                    member = tarfile.TarInfo(member.name)
                    member.type, member.linkname, content = tarfile.SYMTYPE, "/etc/passwd", b""
                if change == "sparse":
                    # 8 GiB of zeros in a header (GNU tar's manual, "PAX 0.1")
                    member.pax_headers = {
                        "GNU.sparse.map": "0,0", "GNU.sparse.size": str(1 << 33),
                        "GNU.sparse.numblocks": "1",
                    }  # fmt: skip
                    content, member.size = b"", 0
            tar.addfile(member, io.BytesIO(content))
            if member.name == "model/weights" and change == "twice":
                tar.addfile(member, io.BytesIO(content))
        if change == "additional":
            tar.addfile(tarfile.TarInfo("../outside"), io.BytesIO(b""))


@pytest.mark.parametrize(
    ("change", "id"),
    [
        ("missing", "offline.missing"),
        ("damaged", "offline.damaged"),
        ("additional", "offline.additional"),
        ("link", "offline.additional"),
        ("twice", "offline.additional"),
        ("sparse", "offline.additional"),
    ],
)
def test_a_changed_file_is_refused(archive: Path, change: str, id: str) -> None:
    rewritten(archive, change)
    with pytest.raises(LaunchError) as caught:
        pack_archive.verify(archive)
    values = caught.value.text.values
    assert (caught.value.id, values["path"]) == (id, str(archive))
    assert "weights" in str(values) or "outside" in str(values)


@pytest.mark.parametrize("content", [b"", b"x" * 2000])
def test_another_file_is_not_a_pack(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.tar"
    file.write_bytes(content)
    for work in (pack_archive.read_manifest, pack_archive.verify):
        with pytest.raises(LaunchError) as caught:
            work(file)
        error = caught.value
        found = (error.id, error.exit_code, error.text.values)
        assert found == ("offline.not_a_pack", ExitCode.USAGE, {"path": str(file)})


def test_a_list_of_the_largest_size_is_read(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(archive) as tar:
        size = tar.getmember("manifest.json").size
    monkeypatch.setattr(pack_archive, "MOST_BYTES", size)
    pack_archive.read_manifest(archive)
    monkeypatch.setattr(pack_archive, "MOST_BYTES", size - 1)
    with raising("offline.not_a_pack"):
        pack_archive.read_manifest(archive)


def test_an_archive_that_changed_after_its_check_is_not_unpacked(
    archive: Path, tmp_path: Path
) -> None:
    rewritten(archive, "additional")
    with pytest.raises(LaunchError) as caught:
        pack_archive.unpack(archive, tmp_path / "out")
    values = {"path": str(archive), "name": "../outside"}
    assert (caught.value.id, caught.value.text.values) == ("offline.damaged", values)
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    ("kept", "first"), [(0, "model/weights"), (4, "model/weights"), (9, "wheels/a.whl")]
)
def test_the_files_after_a_cut_are_missing(archive: Path, kept: int, first: str) -> None:
    content = archive.read_bytes()
    archive.write_bytes(content[: content.index(b"123456789") + kept])
    with pytest.raises(LaunchError) as caught:
        pack_archive.verify(archive)
    assert (caught.value.id, caught.value.text.values["first"]) == ("offline.missing", first)
