"""Rendered files on stdout, and their notes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from gaudi_launch.cli.console import emit_json, say
from gaudi_launch.core.base.messages import Message, text
from gaudi_launch.core.render.deliver import RenderedFiles


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
        say(text("common.pair", label=text("render.word_note"), value=note.render()))


def show_problems(path: str, problems: Sequence[Message], *, as_json: bool) -> None:
    """Print what was found in a Serve config, or that nothing was."""
    if as_json:
        found = [{"id": m.id, "message": m.render(), "values": dict(m.values)} for m in problems]
        emit_json({"schema": 1, "file": path, "problems": found})
        return
    for problem in problems:
        print(problem.render())
    if not problems:
        print(text("ray.sound", path=path))


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
        "notes": [note.to_json() for note in rendered.notes],
    }
