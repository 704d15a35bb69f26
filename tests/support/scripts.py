"""Scripts of the project: as modules, and their short forms."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest

from tests.support.places import TOP
from tests.support.waiting import GENEROUS

# the status of an acceptance script where this machine lacks something that it needs
LACKS = 3


def script(name: str) -> ModuleType:
    """Return scripts/NAME.py as a module."""
    spec = importlib.util.spec_from_file_location(name, TOP / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses of the script look their module up
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def short_form(name: str) -> str:
    """Run the short form of scripts/acceptance/NAME.py; return its output.

    The test is skipped, with the script's reason, where it cannot be run.
    """
    done = subprocess.run(
        [sys.executable, str(TOP / "scripts" / "acceptance" / f"{name}.py"), "--short"],
        capture_output=True,
        text=True,
        timeout=3 * GENEROUS,
        check=False,
    )
    if done.returncode == LACKS:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
