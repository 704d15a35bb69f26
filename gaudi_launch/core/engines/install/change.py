"""The change from one version of an environment to another: place, trial, switch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.engines.install.in_use import check_unused, marker_words
from gaudi_launch.core.engines.install.marker import marker_of
from gaudi_launch.core.engines.install.switch import Versions

_TRIAL_SECONDS = 300
_LAST_LINES = 15

Say = Callable[[str], None]


def place_for(versions: Versions, needed: Mapping[str, str], keys: Sequence[str]) -> Path:
    """Return the folder to install into.

    It is a complete one with these versions, else an unfinished or a new one.
    ``needed`` is the marker that it will have, of which ``keys`` are the versions. Raises
    LaunchError (FAILED) for a complete environment of the same versions that cannot be used here
    (of another container or path), or where a service uses an unfinished one.
    """
    for folder in reversed(versions.folders()):
        found = marker_of(folder)
        if found is None:
            continue
        same = all(found.get(key) == needed[key] for key in keys)
        differs = any(
            found.get(name) != value
            for name, value in needed.items()
            if name not in (*keys, "python")
        )
        if same and not differs and (folder / "bin" / "python").exists():
            return folder
        if same or not found:
            values = {"found": marker_words(found), "needed": marker_words(needed)}
            raise LaunchError("setup.complete_other", ExitCode.FAILED, path=str(folder), **values)
    folder = versions.folder_for_new()
    check_unused(folder)
    return folder


def change(
    versions: Versions, folder: Path, python: Path, say: Say, modules: Sequence[str] = ("vllm",)
) -> Path | None:
    """Put a complete version in force; return the one that it replaces.

    A version that replaces another is tried first: its interpreter ``python`` imports ``modules``.
    Return None where nothing is replaced. Raises LaunchError (FAILED); the old one is in force
    then.
    """
    current = versions.in_force()
    if current is not None and current != folder:
        say(text("setup.trial", path=folder))
        trial(python, modules, kept=current)
    try:
        replaced = versions.put_in_force(folder)
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError(
            "setup.switch_failed", ExitCode.FAILED, path=str(versions.link), why=why
        ) from None
    if replaced is not None:
        say(text("setup.switched", path=folder, old=replaced))
    return replaced


def trial(python: Path, modules: Sequence[str], *, kept: Path) -> None:
    """Import an engine in its interpreter, without a card.

    Raises LaunchError (FAILED) with the last lines; ``kept`` is the version that stays in force.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # docs: PyTorch, "Out-of-tree extension autoloading": the extension for cards is not imported
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    program = f"import {', '.join(modules)}"
    try:
        done = interrupt.run(
            [str(python), "-c", program], env=environment, cwd=python.parent, seconds=_TRIAL_SECONDS
        )
        status, lines = done.returncode, (done.stderr or done.stdout).strip().splitlines()
    except (OSError, subprocess.TimeoutExpired) as error:
        status, lines = 1, [str(error)]
    if status:
        raise LaunchError(
            "setup.trial_failed",
            ExitCode.FAILED,
            program=program,
            path=str(python.parent.parent),
            kept=str(kept),
            detail="\n".join(lines[-_LAST_LINES:]),
        )
