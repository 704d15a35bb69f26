"""A pack as one file: an uncompressed tar, with the list first.

Wheels, weights and recipes are compressed already.
"""

from __future__ import annotations

import logging
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.paths import put
from gaudi_launch.extensions.offline import pack_manifest
from gaudi_launch.extensions.offline.pack_manifest import MOST_BYTES, NAME, Manifest, PackFile

_log = logging.getLogger(__name__)

_BLOCK = 1 << 20


def is_archive(pack: Path) -> bool:
    """Return True for a pack that is a file."""
    return pack.is_file()


def write(folder: Path, target: Path, manifest: Manifest) -> None:
    """Write a folder's pack to a file, which appears atomically. Raises OSError."""
    part = target.with_name(f".{target.name}.new")
    try:
        with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as tar:
            for name in (NAME, *(file.path for file in manifest.files)):
                # without the names of users and groups of this machine
                info = tarfile.TarInfo(name)
                info.size, info.mode = (folder / name).stat().st_size, 0o644
                with (folder / name).open("rb") as file:
                    tar.addfile(info, file)
        put(part, target)
    finally:
        part.unlink(missing_ok=True)


def read_manifest(pack: Path) -> Manifest:
    """Return the list of a file. Raises LaunchError."""
    with _opened(pack) as tar:
        return _first(tar, pack)


def verify(pack: Path) -> Manifest:
    """Compare every file of an archive with its list; return the list.

    Nothing is written. Raises LaunchError.
    """
    here: set[str] = set()
    with _opened(pack) as tar:
        manifest = _first(tar, pack)
        wanted = {file.path: file for file in manifest.files}
        try:
            while (member := tar.next()) is not None:
                # a sparse member states any size at no cost
                is_plain = member.isreg() and not member.issparse()
                if member.name not in wanted or not is_plain or member.name in here:
                    raise pack_manifest.additional(str(pack), [repr(member.name)])
                content = tar.extractfile(member)
                assert content is not None, "a regular file"
                found = PackFile(member.name, member.size, pack_manifest.digest_of(content))
                if found != wanted[member.name]:
                    raise pack_manifest.damaged(str(pack), member.name)
                here.add(member.name)
        except (tarfile.TarError, EOFError) as error:
            # the file ends too early: what was not read yet is missing
            _log.debug("the rest of a pack is not read: %s", error)
    pack_manifest.check_names(str(pack), manifest, here)
    return manifest


def unpack(pack: Path, target: Path) -> None:
    """Unpack a verified archive into a new folder. Raises LaunchError, OSError."""
    with _opened(pack) as tar:
        manifest = _first(tar, pack)
        wanted = {file.path for file in manifest.files}
        while (member := tar.next()) is not None:
            content = tar.extractfile(member) if member.name in wanted else None
            if content is None:
                raise pack_manifest.damaged(str(pack), member.name)
            path = target / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                shutil.copyfileobj(content, file, _BLOCK)


def _first(tar: tarfile.TarFile, pack: Path) -> Manifest:
    member = tar.next()
    if member is None or not member.isreg() or member.name != NAME or member.size > MOST_BYTES:
        raise LaunchError("offline.not_a_pack", ExitCode.USAGE, path=str(pack))
    content = tar.extractfile(member)
    assert content is not None, "a regular file"
    return pack_manifest.read(content.read(), str(pack))


@contextmanager
def _opened(pack: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(pack, "r:") as tar:
            yield tar
    except (tarfile.TarError, EOFError):
        raise LaunchError("offline.not_a_pack", ExitCode.USAGE, path=str(pack)) from None
