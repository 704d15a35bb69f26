"""The list of a pack: what it contains, and the size and SHA-256 of every file.

The list has a separate digest, so that a damaged list is found. The digest shows damage, not who
made the pack.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.paths import write_whole
from gaudi_launch.core.base.reader import parse_json

_log = logging.getLogger(__name__)

NAME = "manifest.json"
KIND = "gaudi-launch offline pack"
SCHEMA = 1
MOST_BYTES = 64 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True)
class PackFile:
    """One file: its path in the pack, its size in bytes and its SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class PackEngine:
    """The engine: its value of --engine, its version, and how it is installed.

    ``kind`` is "anywhere" for the engine without cards, else "gaudi". ``wheels``: it is installed
    from wheels. ``image`` is the name of its image, "" without one, and ``image_file`` the saved
    image or the Dockerfile.
    """

    name: str
    version: str
    kind: str
    wheels: bool = True
    image: str = ""
    image_file: str = ""


@dataclass(frozen=True)
class PackModel:
    """The model: its name, and its folder below the folder of data.

    ``repo`` is its ID on a hub, "" for a folder of the user. ``demo``: it is made from a wheel.
    """

    name: str
    folder: str
    repo: str = ""
    revision: str = ""
    demo: bool = False


@dataclass(frozen=True)
class PackTarget:
    """The host that the wheels are for: Python's version, and machine (``x86_64``)."""

    python: str
    machine: str
    platform: str = ""


@dataclass(frozen=True)
class Manifest:
    """The content of a pack; ``launcher`` is the gaudi-launch that made it."""

    launcher: str
    created: str
    engine: PackEngine
    model: PackModel
    target: PackTarget
    recipes: tuple[str, ...] = ()
    files: tuple[PackFile, ...] = ()

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size for file in self.files)

    def parts(self) -> dict[str, tuple[int, int]]:
        """Return (files, bytes) of each folder of the pack, by its name."""
        found: dict[str, tuple[int, int]] = {}
        for file in self.files:
            name = file.path.partition("/")[0]
            count, size = found.get(name, (0, 0))
            found[name] = (count + 1, size + file.size)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the document of the list, with its digest."""
        plain = {"schema": SCHEMA, "kind": KIND, **codec.write(self)}
        return {**plain, "bytes": self.size, "digest": _digest(plain)}


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read(content: bytes, pack: str) -> Manifest:
    """Return the list of a pack.

    ``pack`` is its path for the sentence. Raises LaunchError for one that is damaged or another's.
    """
    try:
        document = parse_json(content)
        is_pack = document["kind"] == KIND
    except (ValueError, KeyError, TypeError) as error:
        _log.debug("the list of a pack is not read: %s", error)
        raise LaunchError("offline.not_a_pack", ExitCode.USAGE, path=pack) from None
    if not is_pack:
        raise LaunchError("offline.not_a_pack", ExitCode.USAGE, path=pack)
    if document.get("schema") != SCHEMA:
        found = str(document.get("schema"))
        raise LaunchError("offline.schema", ExitCode.USAGE, path=pack, found=found)
    plain = {name: value for name, value in document.items() if name not in ("bytes", "digest")}
    if _digest(plain) != document.get("digest"):
        raise damaged(pack, NAME)
    try:
        manifest = codec.read(Manifest, plain)
    except ValueError as error:
        _log.debug("the list of a pack is not read: %s", error)
        raise damaged(pack, NAME) from None
    named = (manifest.model.folder, manifest.engine.image_file, *manifest.recipes)
    paths = [*(file.path for file in manifest.files), *named]
    if wrong := [path for path in paths if not _is_inside(path)]:
        raise damaged(pack, repr(wrong[0]))
    return manifest


def read_folder(pack: Path) -> Manifest:
    """Return the list of a pack that is a folder. Raises LaunchError as `read`."""
    try:
        with (pack / NAME).open("rb") as file:
            return read(file.read(MOST_BYTES), str(pack))
    except OSError as error:
        _log.debug("the list of a pack is not read: %s", error)
        raise LaunchError("offline.not_a_pack", ExitCode.USAGE, path=str(pack)) from None


def write(pack: Path, manifest: Manifest) -> None:
    """Write the list of a pack. Raises OSError."""
    write_whole(pack / NAME, json.dumps(manifest.to_json(), indent=1))


def listed(pack: Path) -> tuple[PackFile, ...]:
    """Return every file below a folder but the list itself, by path. Raises OSError."""
    found = [
        PackFile(relative, path.stat().st_size, sha256_of(path)) for path, relative in _files(pack)
    ]
    return tuple(sorted(found, key=lambda file: file.path))


def verify(pack: Path, manifest: Manifest) -> None:
    """Compare every file of a folder with the list.

    Raises LaunchError (FAILED) for the first file that is missing, additional or damaged.
    """
    here = {relative: path for path, relative in _files(pack)}
    check_names(str(pack), manifest, set(here))
    for file in manifest.files:
        path = here[file.path]
        is_whole = not path.is_symlink() and path.stat().st_size == file.size
        if not is_whole or sha256_of(path) != file.sha256:
            raise damaged(str(pack), file.path)


def check_names(pack: str, manifest: Manifest, here: set[str]) -> None:
    """Compare names with the list. Raises LaunchError (FAILED)."""
    wanted = {file.path for file in manifest.files}
    missing, unknown = sorted(wanted - here), sorted(here - wanted)
    if missing:
        raise LaunchError(
            "offline.missing", ExitCode.FAILED, path=pack, count=len(missing), first=missing[0]
        )
    if unknown:
        raise additional(pack, unknown)


def additional(pack: str, names: Sequence[str]) -> LaunchError:
    """Return the error of files that the list does not have."""
    return LaunchError(
        "offline.additional", ExitCode.FAILED, path=pack, count=len(names), first=names[0]
    )


def damaged(pack: str, name: str) -> LaunchError:
    """Return the error of a file that differs from the list."""
    return LaunchError("offline.damaged", ExitCode.FAILED, path=pack, name=name)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return digest_of(file)


def digest_of(content: IO[bytes]) -> str:
    """Return the SHA-256 of what is read from a file. Raises OSError."""
    running = hashlib.sha256()
    while block := content.read(_BLOCK):
        running.update(block)
    return running.hexdigest()


def _files(pack: Path) -> Iterator[tuple[Path, str]]:
    """Yield everything that is not a folder, with its path in the pack."""
    for folder, names, files in os.walk(pack):
        links = [name for name in names if Path(folder, name).is_symlink()]
        for name in (*files, *links):
            path = Path(folder, name)
            relative = path.relative_to(pack).as_posix()
            if relative != NAME:
                yield path, relative


def _is_inside(path: str) -> bool:
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts and "\0" not in path
