"""The name of a service, and its files: one folder each under the state folder.

Files are replaced atomically.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.paths import state_dir
from gaudi_launch.core.services.state import service_files

_log = logging.getLogger(__name__)

SCHEMA = 1
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", re.ASCII)


def is_name(name: str) -> bool:
    """Return True for a valid name: letters, digits, dot, dash, underscore.

    The first character is a letter or a digit.
    """
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return a service's name. Raises LaunchError (USAGE) when it cannot be one."""
    if not is_name(name):
        raise LaunchError("serve.bad_name", ExitCode.USAGE, found=name)
    return name


def default_name(model: str, port: str) -> str:
    """Return a name from the model's last part and the port.

    No other service on this machine has that port.
    """
    base = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").rsplit("/", 1)[-1]).strip("-._")
        or "model"
    )
    return f"{base[:50]}-{port}"


def services_dir() -> Path:
    return state_dir() / "services"


def service_dir(name: str) -> Path:
    return services_dir() / check_name(name)


def make_dir(name: str) -> Path:
    """Create a service's folder, for its user only. Raises LaunchError (FAILED)."""
    return make_private(service_dir(name))


def make_private(folder: Path) -> Path:
    """Create a folder for its user only. Raises LaunchError (FAILED)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise _unusable(folder, error) from None
    return folder


def open_lock(file: Path) -> int:
    """Open a lock file of a folder of this program; the caller closes it.

    Raises LaunchError (FAILED).
    """
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(file.parent, error) from None


def _unusable(folder: Path, error: OSError) -> LaunchError:
    return file_error("serve.state_folder", error, folder)


def write(folder: Path, name: str, document: object, *, last: bool = False) -> bool:
    """Replace one JSON file of a service; return whether it was replaced.

    A full disk loses the change, never the old file. ``last``: the change is the service's end
    or that it is ready, which is written over the old file if that has enough space.
    """
    content = _encoded({"schema": SCHEMA, **codec.write(document)})
    part = ""
    try:
        handle, part = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(part).replace(folder / name)
    except OSError:
        _log.debug("%s is not written", folder / name, exc_info=True)
        if part:
            Path(part).unlink(missing_ok=True)
        return last and _overwrite(folder / name, content)
    return True


def _overwrite(path: Path, content: bytes) -> bool:
    """Write over a file within the blocks that it has.

    The old content stays where that fails.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        _log.debug("the record is not overwritten: %s", error)
        return False
    try:
        status = os.fstat(handle)
        # stat(2): blocks of 512 bytes, whatever the file system's block size is
        if len(content) > status.st_blocks * 512:
            return False
        before = os.pread(handle, status.st_size, 0)
        try:
            complete = os.pwrite(handle, content, 0) == len(content)
        except OSError as error:
            _log.debug("the record is not overwritten: %s", error)
            complete = False
        if not complete:
            os.pwrite(handle, before, 0)
        os.ftruncate(handle, len(content) if complete else len(before))
        return complete
    except OSError as error:
        _log.debug("the record is not overwritten: %s", error)
        return False
    finally:
        os.close(handle)


def _encoded(document: Mapping[str, Any]) -> bytes:
    """Return a document as UTF-8.

    A path that is not UTF-8 is kept by JSON's own escapes.
    """
    try:
        return json.dumps(document, ensure_ascii=False, indent=1).encode()
    except UnicodeEncodeError:
        return json.dumps(document, indent=1).encode()


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """Return one JSON file of a service; None when it is missing or incomplete.

    Fields of the wrong kind are removed: a damaged file affects its service only.
    """
    try:
        content = (folder / name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    document = service_files.parse(content)
    if document is None:
        return None
    return service_files.trusted(name, document)
