"""Packs for hosts without a network, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_launch.cli.console import console, emit_json, sentences, size_text, table
from gaudi_launch.core.base.messages import text

if TYPE_CHECKING:
    from gaudi_launch.extensions.offline.case import InstalledPack
    from gaudi_launch.extensions.offline.pack_manifest import Manifest


def _document(path: Path, manifest: Manifest) -> dict[str, Any]:
    """Return a pack for programs."""
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
    print(text("offline.packed", path=str(path), count=count, size=size))
    print(text("offline.next", path=str(path)))


def show_pack(path: Path, manifest: Manifest, as_json: bool) -> None:
    """Print the list of a pack."""
    if as_json:
        files = [asdict(file) for file in manifest.files]
        emit_json({**_document(path, manifest), "files": files})
        return
    out = console()
    target = manifest.target
    print(text("offline.of", engine=manifest.engine.name, version=manifest.engine.version))
    print(text("offline.of_model", model=manifest.model.repo or manifest.model.name))
    machine = target.platform or target.machine
    suited = text("offline.for", python=target.python, machine=machine)
    made = text("offline.by", launcher=manifest.launcher, created=manifest.created)
    print(sentences(suited, made))
    rows = [
        (name, text(f"offline.{_part(name)}"), str(count), size_text(size))
        for name, (count, size) in sorted(manifest.parts().items())
    ]
    names = ("folder", "content", "files", "size")
    columns = [text(f"offline.column_{name}") for name in names]
    out.print(table("", columns, rows, right=(2, 3)))


def _part(folder: str) -> str:
    """Return the id of a folder's name."""
    known = ("wheels", "launcher", "image", "model", "measurements", "recipes", "git")
    return folder if folder in known else "other"


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
    print(text("offline.installed", model=str(done.model), command=done.command))
    if done.recipes:
        print(text("offline.imported", count=len(done.recipes), keys=", ".join(done.recipes)))
    for key, why in done.skipped:
        print(text("offline.skipped", key=key, why=why))
