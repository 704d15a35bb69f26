"""Engine environments that must not be changed: complete ones, and those in use.

One data folder may be reached by several home folders, containers and paths. Paths inside a virtual
environment are absolute, so one that was made by another path may not work here; another process
may still use it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from gaudi_launch.core.base import locks
from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines.install.marker import marker_of

_log = logging.getLogger(__name__)

_LOCK = ".gaudi-launch-in-use"


def check_clearable(folder: Path, needed: Mapping[str, str]) -> None:
    """Raise LaunchError (FAILED) for an environment that must not be cleared.

    It is complete, or in use. ``needed`` is the marker that a usable one would have, for the
    sentence.
    """
    found = marker_of(folder)
    if found is not None:
        raise LaunchError(
            "setup.complete_other",
            ExitCode.FAILED,
            path=str(folder),
            found=marker_words(found),
            needed=marker_words(needed),
        )
    check_unused(folder)


def check_unused(folder: Path) -> None:
    """Raise LaunchError (FAILED) for an environment that a service runs from."""
    if is_used(folder):
        raise LaunchError("setup.in_use", ExitCode.FAILED, path=str(folder))


def is_used(folder: Path) -> bool:
    """Return True for an environment that a service runs from, of any user.

    Return False where no service ever did, or its lock cannot be opened.
    """
    try:
        handle = os.open(_lock_path(folder), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        _log.debug("the use of an environment is unknown: %s", error)
        return False
    try:
        unused = locks.try_take(handle)
    except OSError as error:
        _log.debug("the use of an environment is unknown: %s", error)
        # without locks nothing shows that no service runs from it
        unused = False
    finally:
        os.close(handle)
    return not unused


@contextlib.contextmanager
def in_use(program: str, engines: Path) -> Iterator[None]:
    """Lock a program's environment below ``engines`` against changes while in use.

    Best effort: on a disk that cannot be written the marker alone protects it.
    """
    folder = _environment_of(program, engines)
    handle = None
    if folder is not None:
        with best_effort(_log, "open the lock of the environment"):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(_lock_path(folder), flags, 0o644)
    try:
        if handle is not None:
            with best_effort(_log, "lock the environment"):
                locks.try_take(handle, shared=True)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _lock_path(folder: Path) -> Path:
    """Return the lock's path, next to the environment, which may be cleared."""
    return folder.with_name(f"{_LOCK}-{folder.name}")


def _environment_of(program: str, engines: Path) -> Path | None:
    """Return the folder below ``engines`` that a program is in.

    Only its folder is resolved: the program itself is a link to the base interpreter.
    """
    path = Path(program)
    if not path.is_absolute():
        return None
    real = path.parent.resolve()
    home = engines.resolve()
    if home not in real.parents:
        return None
    return home / real.relative_to(home).parts[0]


def marker_words(marker: Mapping[str, str]) -> str:
    """Return the content of a marker for a sentence."""
    return ", ".join(f"{name} {value}" for name, value in marker.items()) or "-"
