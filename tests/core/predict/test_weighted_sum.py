"""Sums of step times are the same on every machine, and wait for no threads."""

from __future__ import annotations

import ast
import subprocess
import sys

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


def test_numpy_starts_no_threads_and_leaves_no_variable() -> None:
    program = (
        "from gaudi_launch.core.predict.weighted_sum import import_numpy; import_numpy();"
        "import numpy, os;"
        "print(len(os.listdir('/proc/self/task')), *(n for n in os.environ if 'BLAS' in n))"
    )
    # without variables: one of the user stays
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={})
    assert done.stdout == "1\n"
