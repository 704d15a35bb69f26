"""Rendered files onto the disk: all of them or none, each whole, and nobody's file by accident."""

from __future__ import annotations

import os
from pathlib import Path

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.render.records import Rendered


def write(rendered: Rendered, folder: Path, *, force: bool = False) -> tuple[str, ...]:
    """The names of the files written. A file that is there and says something else is only replaced with ``force``.

    Raises LaunchError: such a file is there (USAGE), the folder cannot be written (FAILED).
    """
    try:
        for name, text in rendered.files.items():
            path = folder / name
            if not force and path.exists() and path.read_bytes() != text.encode():
                raise LaunchError("kubernetes.exists", ExitCode.USAGE, path=str(path))
        fresh = []
        for name, text in rendered.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.{os.getpid()}.new")
            new.write_text(text, encoding="utf-8")
            if name in rendered.executable:
                new.chmod(0o755)
            fresh.append((new, path))
        for new, path in fresh:
            new.replace(path)
    except OSError as error:
        where = error.filename or str(folder)
        raise LaunchError("kubernetes.write", ExitCode.FAILED, path=str(where), why=error.strerror or "") from None
    return tuple(rendered.files)
