"""Rendered files, delivered: on stdout, in a file, or in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.written_files import write


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
