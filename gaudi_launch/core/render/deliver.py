"""Rendered files, delivered: on stdout, in a file, or in a folder."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.paths import put
from gaudi_launch.core.render.rendered import Rendered

# the mode of a file, by whether it is executable
_MODES = {True: 0o755, False: 0o644}
# systemd.service(5), and podman-systemd.unit(5) for Quadlet
_UNITS = (".service", ".container")


def places(rendered: Rendered, output: str) -> dict[Path, str]:
    """Return the path of each file.

    ``output`` is a folder if it exists as one, ends in a slash or files are several; else it is the
    path of the only file, with the ending that a unit needs.
    """
    target = Path(output).expanduser()
    if len(rendered.files) == 1 and not target.is_dir() and not output.endswith("/"):
        name = next(iter(rendered.files))
        return {_as_unit(target, name): name}
    return {target / name: name for name in rendered.files}


def _as_unit(target: Path, name: str) -> Path:
    """Return the path with the ending of a unit.

    systemd ignores a file without one (systemd.unit(5)).
    """
    ending = Path(name).suffix
    if ending not in _UNITS or target.suffix == ending:
        return target
    return target.with_name(f"{target.name}{ending}")


def write(rendered: Rendered, output: str, *, force: bool) -> list[Path]:
    """Write the files; return their paths.

    Raises LaunchError: one exists already (USAGE), or the disk is full (FAILED). Nothing is written
    then.
    """
    parts: list[tuple[Path, Path]] = []
    try:
        wanted = places(rendered, output)
        there = [str(path) for path in wanted if path.exists() or path.is_symlink()]
        if there and not force:
            raise LaunchError("render.exists", ExitCode.USAGE, files=", ".join(there))
        for path, name in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.{os.getpid()}.part")
            parts.append((part, path))
            part.write_text(rendered.files[name], encoding="utf-8")
            part.chmod(_MODES[name in rendered.executable])
        for part, path in parts:
            put(part, path)
    except OSError as error:
        raise file_error("render.cannot_write", error, output) from None
    finally:
        for part, _ in parts:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
    return list(wanted)


@dataclass(frozen=True)
class Destination:
    """The target of rendered files, and the service's name.

    A name of None is made from model and port. ``output`` None: nothing is written, which only
    ``several`` allows for more than one file.
    """

    output: str | None
    name: str | None = None
    several: bool = False


@dataclass(frozen=True)
class RenderedFiles:
    """The rendered files of a target; ``written`` are the paths on disk."""

    target: str
    name: str
    rendered: Rendered
    written: tuple[Path, ...]


def deliver(rendered: Rendered, target: str, to: Destination, *, force: bool) -> RenderedFiles:
    """Write the rendered files if that is requested; the end of every target.

    Raises LaunchError: several files and no folder for them (USAGE), or as
    `core.render.written_files.write` does.
    """
    written: list[Path] = []
    if to.output is not None:
        written = write(rendered, to.output, force=force)
    elif len(rendered.files) > 1 and not to.several:
        raise LaunchError(
            "render.several", ExitCode.USAGE, target=target, files=", ".join(rendered.files)
        )
    return RenderedFiles(target, to.name or "", rendered, tuple(written))
