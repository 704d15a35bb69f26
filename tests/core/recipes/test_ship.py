"""Export and import: byte for byte, or not at all."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.recipes import maintenance, ship
from gaudi_launch.core.recipes.key import KeyParts
from gaudi_launch.core.recipes.key_locks import held
from tests.support.recipes import PARTS, fill
from tests.support.refusals import failing, raising, refusal

HERE = KeyParts(product="gaudi2", stepping="GAUDI2", driver="1.21")


def exported(root: Path, tmp_path: Path) -> Path:
    folder = fill(root)
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.recipe").write_bytes(os.urandom(70_000))
    file = tmp_path / "key.tar.zst"
    assert ship.export(root, maintenance.find(root, PARTS.key), file) == (5, 71_000)
    return file


def contents(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_a_key_that_is_there_is_replaced_only_by_force(root: Path, tmp_path: Path) -> None:
    file = exported(root, tmp_path)
    with raising("cache.import_exists"):
        ship.import_(root, file, HERE)
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
    with (
        tarfile.open(fileobj=io.BytesIO(raw)) as source,
        tarfile.open(fileobj=out, mode="w") as target,
    ):
        for name in ("ledger.json", "files"):
            target.addfile(source.getmember(name), source.extractfile(name))
        evil.size = len(content) if evil.isreg() else 0
        target.addfile(evil, io.BytesIO(content))
    file = tmp_path / "evil.tar.zst"
    file.write_bytes(zstandard.ZstdCompressor().compress(out.getvalue()))
    return file


def test_sync_prints_one_rsync_and_refuses_options(root: Path) -> None:
    fill(root)
    words = ship.sync_command(root, maintenance.find(root, PARTS.key), "me@host:/data/cache/")
    assert words == [
        "rsync", "-a", "--partial", "--mkpath",
        f"{root}/{PARTS.key}.json", f"{root}/{PARTS.key}.files", f"{root}/{PARTS.key}",
        "me@host:/data/cache/",
    ]  # fmt: skip
    for bad in ("-e sh", "--rsh=x", "", "a b"):
        with pytest.raises(LaunchError):
            ship.sync_command(root, maintenance.find(root, PARTS.key), bad)


def squeezed(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    """An archive of these members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as target:
        for member, content in members:
            member.size = len(content)
            target.addfile(member, io.BytesIO(content))
    file = tmp_path / "squeezed.tar.zst"
    file.write_bytes(zstandard.ZstdCompressor().compress(out.getvalue()))
    return file


def head(
    root: Path, tmp_path: Path, listed: bytes | None = None
) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The two documents of a true export; ``listed`` instead of its list."""
    raw = zstandard.ZstdDecompressor().stream_reader(exported(root, tmp_path).open("rb")).read()
    found = []
    with tarfile.open(fileobj=io.BytesIO(raw)) as source:
        for name in ("ledger.json", "files"):
            file = source.extractfile(name)
            assert file is not None
            found.append((tarfile.TarInfo(name), file.read()))
    if listed is not None:
        found[1] = (found[1][0], listed)
    return found


def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that imports write into files, as they are written."""
    counts: list[int] = []

    def copy(source: io.BufferedReader, target: io.BufferedWriter, length: int = 0) -> None:
        while block := source.read(1 << 20):
            counts.append(target.write(block))

    monkeypatch.setattr(shutil, "copyfileobj", copy)
    return counts


def test_what_the_list_does_not_name_is_never_written(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = (tarfile.TarInfo("recipes/bomb"), bytes(64 << 20))
    file = squeezed(tmp_path, [*head(root, tmp_path), bomb])
    counts = written(monkeypatch)
    with pytest.raises(LaunchError) as refused:
        ship.import_(tmp_path / "other", file, HERE)
    assert (refused.value.id, refused.value.text.values["why"]) == ("cache.import_damaged", "bomb")
    assert counts == []


def test_more_than_the_disk_has_is_refused_first(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1 << 60
    listed = f"bomb\t{size}\tdigest\t0\n".encode()
    counts = written(monkeypatch)
    with failing("cache.import_no_room", ExitCode.MACHINE):
        ship.import_(tmp_path / "other", squeezed(tmp_path, head(root, tmp_path, listed)), HERE)
    assert counts == []
    assert list((tmp_path / "other").iterdir()) == []


def test_a_bomb_in_a_header_is_cut_off(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tarfile reads a pax header into memory, however long it is."""
    monkeypatch.setattr(ship, "_MOST_HEAD_BYTES", 1 << 20)
    member = tarfile.TarInfo("recipes/x")
    member.pax_headers = {"comment": "0" * (64 << 20)}
    with pytest.raises(LaunchError) as refused:
        ship.import_(
            tmp_path / "other", squeezed(tmp_path, [*head(root, tmp_path), (member, b"")]), HERE
        )
    assert (refused.value.id, refused.value.text.values["why"]) == (
        "cache.import_damaged",
        "larger than its own list",
    )


def test_an_endless_number_in_the_ledger_is_a_sentence(root: Path, tmp_path: Path) -> None:
    (ledger, content), files = head(root, tmp_path)
    endless = content.replace(b'"num_blocks": ', b'"num_blocks": 1e999, "x": ')
    assert endless != content
    with raising("cache.import_not_ours"):
        ship.import_(tmp_path / "other", squeezed(tmp_path, [(ledger, endless), files]), HERE)


def test_exports_that_fail_leave_no_file(root: Path, tmp_path: Path) -> None:
    fill(root)
    entry = maintenance.find(root, PARTS.key)
    damaged = replace(entry, ledger=None, trouble="why")
    values = {"key": PARTS.key, "why": "why"}
    failed = refusal(lambda: ship.export(root, damaged, tmp_path / "x"))
    assert failed == ("cache.no_ledger", 1, values)
    target = tmp_path / "folder"
    target.mkdir()
    values = {"path": str(target), "why": "Is a directory"}
    assert refusal(lambda: ship.export(root, entry, target)) == ("cache.export_failed", 1, values)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "recipes"]


def test_what_an_import_refuses_is_named(root: Path, tmp_path: Path) -> None:
    file = exported(root, tmp_path)
    other = tmp_path / "other"
    path = str(file)
    driver = replace(HERE, product="", driver="1.22", stepping="X")
    values = {"path": path, "differences": "stepping GAUDI2 -> X; driver 1.21 -> 1.22"}
    failed = refusal(lambda: ship.import_(other, file, driver))
    assert failed == ("cache.import_differs", 3, values)
    values = {"key": PARTS.key, "path": str(root)}
    assert refusal(lambda: ship.import_(root, file, HERE)) == ("cache.import_exists", 1, values)
    none = tmp_path / "none"
    values = {"path": str(none), "why": "No such file or directory"}
    assert refusal(lambda: ship.import_(other, none, HERE)) == ("cache.import_failed", 1, values)
    evil = crafted(tmp_path / "new", tmp_path, tarfile.TarInfo("../evil"))
    values = {"path": str(evil), "name": "'../evil'"}
    assert refusal(lambda: ship.import_(other, evil, HERE)) == ("cache.import_unsafe", 1, values)
    # an import of a key that an engine uses
    with held(root, PARTS.key, exclusive=False):
        failed = refusal(lambda: ship.import_(root, file, HERE, force=True))
    assert failed == ("cache.in_use", 1, {"key": PARTS.key, "path": str(root)})


def test_archives_of_another_program(root: Path, tmp_path: Path) -> None:
    first, second = head(root, tmp_path)
    other = tmp_path / "other"
    wrong = tarfile.TarInfo("other.json")
    link = tarfile.TarInfo("ledger.json")
    link.type = tarfile.SYMTYPE
    for members, missing in (
        ([(wrong, b"x")], "ledger.json"),
        ([(link, b"")], "ledger.json"),
        ([first], "files"),
        ([first, (wrong, b"x")], "files"),
    ):
        file = squeezed(tmp_path, members)
        values = {"path": str(file), "why": f"no {missing}"}
        failed = refusal(lambda: ship.import_(other, file, HERE))  # noqa: B023
        assert failed == ("cache.import_not_ours", 2, values)
    file = squeezed(tmp_path, [(first[0], b"{}"), second])
    why = "its schema is None, this program reads 1"
    failed = refusal(lambda: ship.import_(other, file, HERE))
    assert failed == ("cache.import_not_ours", 2, {"path": str(file), "why": why})


@pytest.mark.parametrize(
    ("shorter", "id"), [(0, "cache.import_damaged"), (1, "cache.import_not_ours")]
)
def test_a_ledger_that_is_too_long_is_not_read(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shorter: int, id: str
) -> None:
    """Of one that is not too long, only its recipes are missing."""
    first, second = head(root, tmp_path)
    longest = max(len(first[1]), len(second[1]))
    monkeypatch.setattr(ship, "_MOST_LEDGER_BYTES", longest - shorter)
    file = squeezed(tmp_path, [first, second])
    found = refusal(lambda: ship.import_(tmp_path / "other", file, HERE))
    assert (found[0], str(found[2]["why"]).startswith("recipe")) == (id, not shorter)
