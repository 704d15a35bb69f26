"""An interpreter with a plugin of known constraints and made-up packages."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ENGINE = {"vllm-gaudi": "0.26.0", "vllm": "0.26.0"}


def drifted_engine(folder: Path, packages: Mapping[str, str]) -> Path:
    """Return a program that has the plugin and ``packages``."""
    site = folder / "site-packages"
    for name, version in {**ENGINE, **packages}.items():
        module = name.replace("-", "_")
        (site / module).mkdir(parents=True)
        (site / module / "__init__.py").write_text("")
        info = site / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(
            f"{module}/__init__.py,,\n{info.name}/METADATA,,\n../../bin/{name},,\n"
        )
    program = folder / "bin" / "python3"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return program
