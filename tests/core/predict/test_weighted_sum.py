"""Sums of step times are the same on every machine, and wait for no threads."""

from __future__ import annotations

import ast

from tests.support.places import PACKAGE

# its matrices have a row for each published figure, some hundred
_SMALL = {"core/predict/fitting.py"}


def test_no_sum_of_many_steps_is_given_to_blas() -> None:
    found = set()
    for folder in ("core/buckets", "core/predict", "extensions/recommend"):
        for path in (PACKAGE / folder).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(isinstance(node, ast.MatMult) for node in ast.walk(tree)):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == _SMALL
