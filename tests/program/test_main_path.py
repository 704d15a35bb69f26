"""Drawn combinations through plan, warmup, render script and inspect, judged by other code.

``scripts/acceptance/main_path.py`` draws and judges; its ``--record`` executed the engines' bucket
code for the combinations of this seed.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.every_case import examples
from tests.support.scripts import script

# that of the record
SEED, COUNT = 33, examples(12, 40)


def test_drawn_combinations_are_planned_alike_by_every_command(tmp_path: Path) -> None:
    main_path = script("acceptance/main_path")
    with main_path.alone(tmp_path):
        report = main_path.Walk(tmp_path).run(SEED, COUNT)

    assert report.wrong == []
    assert report.drawn == COUNT and report.accepted >= COUNT / 2
    # a plan that changed asks another question, which nothing has answered
    assert report.compared >= report.accepted / 2
