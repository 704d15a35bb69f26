"""The short selection follows from the seconds that a run took."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import durations


def test_a_run_replaces_the_modules_that_it_ran(tmp_path: Path) -> None:
    file = tmp_path / "durations.json"
    file.write_text(json.dumps({"a.py": {"test_old": 1.0}, "b.py": {"test_it": 2.0}}))
    taken = {"tests/a.py::test_new[1]": 0.2, "tests/a.py::test_new[2]": 0.24, "tests/c.py::x": 0.1}
    durations.write(taken, file)
    assert durations.read(file) == {"a.py": {"test_new": 0.4}, "b.py": {"test_it": 2.0}}
