"""Packs for hosts without a network, for people and for programs."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import emit_json, size_text
from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from rich.text import Text

    from gaudi_launch.extensions.offline.case import InstalledPack
    from gaudi_launch.extensions.offline.pack_manifest import Manifest

# the folders of a pack that the page names
_NAMED = ("wheels", "launcher", "image", "model", "measurements", "recipes", "git")


def _document(path: Path, manifest: Manifest) -> dict[str, Any]:
    parts = {
        name: {"files": count, "bytes": size} for name, (count, size) in manifest.parts().items()
    }
    return {
        "schema": 1,
        "pack": str(path),
        "launcher": manifest.launcher,
        "created": manifest.created,
        "engine": asdict(manifest.engine),
        "model": asdict(manifest.model),
        "target": asdict(manifest.target),
        "recipes": list(manifest.recipes),
        "parts": parts,
        "bytes": manifest.size,
    }


def show_packed(path: Path, manifest: Manifest, as_json: bool) -> None:
    """Print a finished pack."""
    if as_json:
        emit_json(_document(path, manifest))
        return
    count, size = len(manifest.files), size_text(manifest.size)
    head = [text("offline.packed", path=str(path), count=count, size=size)]
    install = next_line(f"gaudi-launch offline install {shlex.quote(path.name)}")
    ShortPage([*head, install, text("offline.copy", path=str(path))]).show(complete=True)


def show_pack(path: Path, manifest: Manifest, as_json: bool) -> None:
    """Print the list of a pack."""
    if as_json:
        files = [asdict(file) for file in manifest.files]
        emit_json({**_document(path, manifest), "files": files})
        return
    target, engine = manifest.target, manifest.engine
    answer = text(
        "offline.of",
        engine=f"{engine.name} {engine.version}",
        model=manifest.model.repo or manifest.model.name,
        python=target.python,
        machine=target.platform or target.machine,
    )
    rows = []
    for name, (count, size) in sorted(manifest.parts().items()):
        title = text(f"offline.{name if name in _NAMED else 'other'}")
        rows.append(NotedRow((name, title, str(count), size_text(size))))
    names = ("folder", "content", "files", "size")
    page = ShortPage(
        [answer, next_line(f"gaudi-launch offline install {shlex.quote(str(path))}")],
        [text(f"offline.column_{name}") for name in names],
        rows,
        right=(2, 3),
        tail=[text("offline.by", launcher=manifest.launcher, created=manifest.created)],
    )
    page.show(complete=True)


def show_installed(done: InstalledPack, as_json: bool) -> None:
    """Print what was installed."""
    if as_json:
        emit_json(
            {
                "schema": 1,
                "engine": done.manifest.engine.name,
                "python": done.python,
                "image": done.image,
                "model": str(done.model),
                "recipes": list(done.recipes),
                "skipped": [{"key": key, "why": why} for key, why in done.skipped],
                "measurements": done.measurements,
                "command": done.command,
            }
        )
        return
    lines: list[str | Text] = [
        text("offline.installed", model=str(done.model)),
        next_line(done.command),
    ]
    if done.recipes:
        keys = ", ".join(done.recipes)
        lines.append(text("offline.imported", count=len(done.recipes), keys=keys))
    lines += [text("offline.skipped", key=key, why=why) for key, why in done.skipped]
    ShortPage(lines).show(complete=True)
