"""The density of the code: it is counted, and it never rises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[1]
SCRIPT = TOP / "scripts" / "density.py"
RECORD = TOP / "tests" / "data" / "density.json"


def density(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_no_package_is_denser_than_recorded() -> None:
    # less dense now: python scripts/density.py --write tests/data/density.json
    done = density("--check", str(RECORD))
    assert (done.stdout, done.returncode) == ("\n", 0)


def test_branches_and_conditional_expressions_are_counted(tmp_path: Path) -> None:
    package = tmp_path / "package" / "part"
    package.mkdir(parents=True)
    (package / "module.py").write_text(
        '"""A docstring\n\nof three lines is no code."""\n\n'
        "def found(rows: list[int]) -> int:\n"
        "    # no code either\n"
        "    if rows and rows[0] > 1 or not rows:\n"
        "        return 1 if rows else 0\n"
        "    return sum(row for row in rows if row)\n"
    )
    file = tmp_path / "density.json"
    done = density("--root", str(tmp_path / "package"), "--write", str(file))
    assert done.returncode == 0
    # if, and, or, a conditional expression, a condition: five in four lines
    counted = {"modules": 1, "lines": 4, "branches": 125.0, "conditionals": 250.0, "wide": 0.0}
    assert json.loads(file.read_text()) == {"part": counted, "total": counted}
    denser = {**counted, "branches": 124.9}
    file.write_text(json.dumps({"total": denser}))
    refused = density("--root", str(tmp_path / "package"), "--check", str(file))
    assert refused.returncode == 1
    assert "part: branches 125.0, recorded 124.9" in refused.stdout


def test_functions_are_listed_by_their_branches(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "def plain() -> int:\n"
        "    return 1\n\n\n"
        "def dense(rows: list[int]) -> int:\n"
        "    return rows[0] if rows and rows[0] else 0\n"
    )
    done = density("--root", str(tmp_path), "--functions", "2")
    assert done.stdout.splitlines() == ["    3  module.py:5 dense", "    1  module.py:1 plain"]
