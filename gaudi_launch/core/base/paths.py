"""Folders of the program: XDG folders, and the root of the inspected machine."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_APP = "gaudi-launch"


def _xdg(variable: str, fallback: str) -> Path:
    base = os.environ.get(variable, "")
    # the XDG specification requires programs to ignore relative paths
    return (Path(base) if Path(base).is_absolute() else Path.home() / fallback) / _APP


def state_dir() -> Path:
    """Return the folder of services, logs, journals. Not created here."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """Return the folder of what can be made again: recipes, simulations.

    Not created here.
    """
    return _xdg("XDG_CACHE_HOME", ".cache")


def data_dir() -> Path:
    """Return the folder of engine environments and models. Not created here."""
    return _xdg("XDG_DATA_HOME", ".local/share")


def engines_dir() -> Path:
    """Return the folder of engine environments. Not created here.

    It is GAUDI_LAUNCH_ENGINES_DIR, else in the folder of data.
    """
    own = os.environ.get("GAUDI_LAUNCH_ENGINES_DIR")
    if own:
        return Path(own).absolute()
    return data_dir() / "engines"


def config_dir() -> Path:
    """Return the folder of the user's settings and profiles. Not created here."""
    return _xdg("XDG_CONFIG_HOME", ".config")


def machine_root() -> Path:
    """Return the folder that is read as "/" (GAUDI_LAUNCH_ROOT, default "/")."""
    return Path(os.environ.get("GAUDI_LAUNCH_ROOT") or "/")


def write_whole(path: Path, content: str, mode: int = 0o666) -> None:
    """Replace a file atomically, also with several writers; create its folder.

    Raises OSError. Nothing is left then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        put(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def put(part: Path, path: Path) -> None:
    """Rename a complete file to the place that a user named.

    Raises OSError, also for a device, a pipe or a socket there: root would lose /dev/null.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    part.replace(path)


def docs_dir() -> Path:
    """Return the folder of the documentation."""
    return _shipped("docs")


def profiles_dir() -> Path:
    """Return the folder of shipped profiles."""
    return _shipped("profiles")


def _shipped(name: str) -> Path:
    """Return a folder of the wheel, or of the top of the checkout."""
    package = Path(__file__).parents[2]
    installed = package / f"_{name}"
    return installed if installed.is_dir() else package.parent / name
