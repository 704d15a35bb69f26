"""The file system of a cache.

A network file system has no file locking that the bridge can rely on (docs: Runtime Environment
Variables), so a cache there is copied to local disk and back.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from stat import S_ISREG

from gaudi_launch.core.host.config_files import mount_kind
from gaudi_launch.core.recipes.manifest import walk

_log = logging.getLogger(__name__)

# /proc/mounts names; fuse.* covers sshfs, ceph-fuse, juicefs, s3fs and the like
_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "ceph",
    "glusterfs",
    "lustre",
    "gpfs",
    "beegfs",
    "afs",
    "9p",
}
_LOCAL_FUSE = {"fuse.fuse-overlayfs", "fuseblk", "fusectl"}


def is_network(kind: str) -> bool:
    """Return True for a type of file system without reliable locks."""
    return kind in _NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)


def file_system(path: Path, machine_root: Path = Path("/")) -> str:
    """Return the file system type of a path (``ext4``, ``nfs4``), "" when unknown."""
    try:
        mounts = (machine_root / "proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        _log.debug("the mounts are not read: %s", error)
        return ""
    return mount_kind(mounts, os.fspath(path.absolute())) or ""


def copy_new(source: Path, target: Path) -> None:
    """Copy every file that the target lacks or has in another size.

    Each file appears atomically. Raises OSError (disk full): the target then contains only complete
    files.
    """
    for name, status in walk(source):
        if not S_ISREG(status.st_mode) or not status.st_size:
            continue
        there = target / name
        try:
            if there.stat().st_size == status.st_size:
                continue
        except FileNotFoundError:
            there.parent.mkdir(parents=True, exist_ok=True)
        part = there.with_name(f".{there.name}.part")
        try:
            shutil.copy2(source / name, part)
            part.replace(there)
        finally:
            part.unlink(missing_ok=True)
