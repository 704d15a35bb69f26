"""The short form of the acceptance scripts of faults and attacks, which draw 16 to 66 of each."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.places import TOP


@pytest.mark.parametrize(
    ("script", "times", "cases"),
    [
        ("attacks.py", 6, ("packs",)),
        ("attacks.py", 3, ("killed_setup",)),
        ("attacks.py", 1, ("killed_pull", "damaged_pull", "ssh_words", "logs")),
        ("rare_faults.py", 1, ("storms", "killed_launcher", "sparse_packs", "umasks")),
    ],
)
def test_a_few_draws_of_each_fault(script: str, times: int, cases: tuple[str, ...]) -> None:
    words = [sys.executable, str(TOP / "scripts" / "acceptance" / script), str(times), "35", *cases]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=TOP)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout).keys() == set(cases)
