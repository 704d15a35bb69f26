"""Rendered files on stdout, and their notes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import emit_json
from gaudi_launch.messages import text

if TYPE_CHECKING:
    from gaudi_launch.app.render import RenderedFiles


def show(files: RenderedFiles, *, as_json: bool) -> None:
    """Print the only file, the paths of written files, or everything as JSON.

    Without JSON, notes are printed on stderr.
    """
    if as_json:
        emit_json(to_json(files))
        return
    if not files.written:
        sys.stdout.write(next(iter(files.rendered.files.values())))
    for path in files.written:
        print(path)
    for note in files.rendered.notes:
        line = text("common.pair", label=text("render.word_note"), value=note.render())
        print(line, file=sys.stderr, flush=True)


def to_json(files: RenderedFiles) -> dict[str, Any]:
    """Return the files with their text, paths and notes for programs."""
    rendered = files.rendered
    return {
        "schema": 1,
        "target": files.target,
        "name": files.name,
        "files": [
            {"name": name, "executable": name in rendered.executable, "text": content}
            for name, content in rendered.files.items()
        ],
        "written": [str(path) for path in files.written],
        "notes": [{"id": note.id, "message": note.render()} for note in rendered.notes],
    }
