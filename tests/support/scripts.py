"""Scripts of the project as modules."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.support.places import TOP


def script(name: str) -> ModuleType:
    """Return scripts/NAME.py as a module."""
    spec = importlib.util.spec_from_file_location(name, TOP / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses of the script look their module up
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
