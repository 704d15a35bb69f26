"""The oldest Python of pyproject.toml reads the code that no package is needed for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.places import TOP

_MODULES = "gaudi_launch.core.base.debug_log, gaudi_launch.extensions.vllm_cpu.inside_image"


def oldest() -> str | None:
    """Return an interpreter of Python 3.10 that runs; a shim of pyenv may not."""
    inside = sorted((Path.home() / ".pyenv" / "versions").glob("3.10.*/bin/python"))
    for each in (*map(str, inside), shutil.which("python3.10")):
        if each is None:
            continue
        if not subprocess.run([each, "-c", ""], capture_output=True, check=False).returncode:
            return each
    return None


def test_modules_without_packages_are_imported() -> None:
    python = oldest()
    if python is None:
        pytest.skip("no Python 3.10 on this machine")
    program = f"import sys; sys.path.insert(0, {str(TOP)!r}); import {_MODULES}"
    done = subprocess.run(
        [python, "-I", "-S", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
