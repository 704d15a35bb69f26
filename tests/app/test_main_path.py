"""Drawn combinations through plan, warmup, render script and inspect, judged by other code.

``scripts/acceptance/main_path.py`` draws and judges; its ``--record`` executed the engines' bucket
code for the combinations of this seed.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tests.support.places import TOP

# that of the record
SEED, COUNT = 33, 40


def main_path() -> ModuleType:
    """Return scripts/acceptance/main_path.py."""
    spec = importlib.util.spec_from_file_location(
        "main_path", TOP / "scripts" / "acceptance" / "main_path.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_drawn_combinations_are_planned_alike_by_every_command(tmp_path: Path) -> None:
    script = main_path()
    with script.alone(tmp_path):
        report = script.Walk(tmp_path).run(SEED, COUNT)

    assert report.wrong == []
    assert report.drawn == COUNT and report.accepted >= COUNT / 2
    # a plan that changed asks another question, which nothing has answered
    assert report.compared >= report.accepted / 2
