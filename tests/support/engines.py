"""Interpreters that report chosen packages."""

from __future__ import annotations

import sys
from pathlib import Path


def interpreter(folder: Path, packages: dict[str, str], files: dict[str, str]) -> str:
    """Return a python program with these packages (name -> version) and files."""
    site = folder / "site"
    for name, version in packages.items():
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return str(program)
