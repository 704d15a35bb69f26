"""Give what this user writes in a cache the group rights of its root.

A root that its group may write (`chgrp GROUP`, `chmod g+ws`) is shared by the users of the group,
whatever their umask: locks, ledgers and directories of keys can be used by all of them. A root of
one user stays as the umask makes it.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

_log = logging.getLogger(__name__)

_FILE = stat.S_IRGRP | stat.S_IWGRP
_FOLDER = _FILE | stat.S_IXGRP | stat.S_ISGID


def share(path: Path, root: Path) -> None:
    """Give a file or directory of this user the group of a root, and its rights.

    Does nothing where the root is not shared, or where the path is another user's or a link. A
    failure is logged: it costs the others, not this user.
    """
    try:
        shared = root.stat()
        found = path.lstat()
        if not shared.st_mode & stat.S_IWGRP or found.st_uid != os.geteuid():
            return
        if stat.S_ISLNK(found.st_mode):
            return
        if found.st_gid != shared.st_gid:
            os.chown(path, -1, shared.st_gid)
        bits = _FOLDER if stat.S_ISDIR(found.st_mode) else _FILE
        path.chmod(stat.S_IMODE(found.st_mode) | bits)
    except OSError as error:
        _log.debug("%s is not shared with the group: %s", path, error)


def share_all(folder: Path, root: Path) -> None:
    """Share a directory and all in it.

    The engine wrote it by this user's umask.
    """
    for path in (folder, *folder.rglob("*")):
        share(path, root)
