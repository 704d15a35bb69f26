"""Engine environments that are left alone: complete ones, and those that a service runs from.

One data folder may be reached by several homes, containers and paths. What is written inside a virtual environment
are absolute paths, so one that was made by another path may be of no use here; it is still somebody's.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from gaudi_launch import locks
from gaudi_launch.debug_log import best_effort
from gaudi_launch.errors import ExitCode, LaunchError

_log = logging.getLogger(__name__)

MARKER = "gaudi-launch.json"
_LOCK = ".gaudi-launch-in-use"


def marker_of(folder: Path) -> dict[str, str] | None:
    """Return what the marker of a complete environment says; None for one that is not complete."""
    try:
        found = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        # it is there, and cannot be read: nothing shows that the environment is not complete
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def check_clearable(folder: Path, needed: dict[str, str]) -> None:
    """Raise LaunchError (FAILED) for an environment that must not be cleared: it is complete, or in use.

    ``needed`` is what a complete one would say, for the sentence.
    """
    found = marker_of(folder)
    if found is not None:
        raise LaunchError(
            "setup.complete_other",
            ExitCode.FAILED,
            path=str(folder),
            found=_words(found),
            needed=_words(needed),
        )
    check_unused(folder)


def check_unused(folder: Path) -> None:
    """Raise LaunchError (FAILED) for an environment that a service runs from."""
    try:
        handle = os.open(_lock_path(folder), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        unused = locks.try_take(handle)
    except OSError:
        # without locks nothing shows that no service runs from it
        unused = False
    finally:
        os.close(handle)
    if not unused:
        raise LaunchError("setup.in_use", ExitCode.FAILED, path=str(folder))


@contextlib.contextmanager
def in_use(program: str, engines: Path) -> Iterator[None]:
    """Keep the environment of a program, if it is one of ours below ``engines``, from being changed meanwhile.

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
    """Beside the environment: what is inside goes when it is cleared."""
    return folder.with_name(f"{_LOCK}-{folder.name}")


def _environment_of(program: str, engines: Path) -> Path | None:
    """Return the folder below ``engines`` that a program is in; its last links are to the base interpreter."""
    path = Path(program)
    if not path.is_absolute():
        return None
    real = path.parent.resolve()
    home = engines.resolve()
    if home not in real.parents:
        return None
    return home / real.relative_to(home).parts[0]


def _words(marker: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in marker.items()) or "-"
