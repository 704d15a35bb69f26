"""The record of a folder that was fetched from a hub."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.paths import write_whole
from gaudi_launch.core.base.reader import read_json

_log = logging.getLogger(__name__)

RECORD = ".gaudi-launch.json"


@dataclass(frozen=True)
class RemoteFile:
    """One file of a repository.

    ``digest`` is ``sha256:HEX`` or ``blob:HEX`` (git's sha1), "" when unknown.
    """

    path: str
    size: int
    digest: str = ""


@dataclass(frozen=True)
class Fetched:
    """The record of a fetched folder: its source, and each verified file.

    Files are (size, digest, mtime in ns) by path.
    """

    repo: str
    source: str
    revision: str
    whole: bool
    files: Mapping[str, tuple[int, str, int]]

    def has(self, folder: Path, file: RemoteFile) -> bool:
        """Return True if this file exists as it was verified."""
        known = self.files.get(file.path)
        try:
            status = (folder / file.path).stat()
        except OSError:
            return False
        return (
            known is not None
            and known == (file.size, file.digest, status.st_mtime_ns)
            and status.st_size == file.size
        )

    def intact(self, folder: Path) -> bool:
        """Return True if every verified file still exists with its size."""
        try:
            return all(
                (folder / path).stat().st_size == size for path, (size, _, _) in self.files.items()
            )
        except OSError:
            return False


def read_record(folder: Path) -> Fetched | None:
    """Return the record of a folder; None without a valid one."""
    try:
        return codec.read(Fetched, read_json(folder / RECORD))
    except (OSError, ValueError) as error:
        _log.debug("the record of a download is not read: %s", error)
        return None


def write_record(folder: Path, fetched: Fetched) -> None:
    """Replace a folder's record atomically. Raises OSError."""
    document = {"schema": 1, **codec.write(fetched)}
    write_whole(folder / RECORD, json.dumps(document, indent=1))
