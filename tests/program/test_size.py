"""The size of the project: it is counted, and no figure rises."""

from __future__ import annotations

import copy
import json
from pathlib import Path

from tests.support.places import PACKAGE, TOP
from tests.support.scripts import script

RECORD = TOP / "tests" / "data" / "size.json"


def test_no_figure_is_above_the_record() -> None:
    # smaller now: python scripts/size.py --write; larger: CONTRIBUTING.md, "Size"
    # the other two are imported by it, and share what it counts
    size, *_ = map(script, ("size", "reach", "interface"))
    now = size.measured()
    assert size.above(now, json.loads(RECORD.read_text(encoding="utf-8"))) == []
    assert size.misshaped(now, size.records(PACKAGE)) == []


def test_lines_statements_and_branches_are_counted() -> None:
    counted = script("size").size_of(
        '"""A docstring\n\nof three lines is no code."""\n\n'
        "def found(rows: list[int]) -> int:\n"
        "    # no code either\n"
        "    if rows and rows[0] > 1 or not rows:\n"
        "        return 1 if rows else 0\n"
        "    return sum(row for row in rows if row)\n"
    )
    # docstring, def, if and two returns; if, and, or, a conditional expression, a condition
    assert (counted.lines, counted.statements) == (4, 5)
    assert (counted.branches, counted.conditionals) == (5, 1)


def test_each_figure_that_rises_is_named() -> None:
    size = script("size")
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    figures = [
        (part, name) for part in (*recorded["folders"].values(), recorded["sums"]) for name in part
    ]
    for at in range(len(figures)):
        now = copy.deepcopy(recorded)
        part = [*now["folders"].values(), now["sums"]]
        changed = [(each, name) for each in part for name in each][at]
        changed[0][changed[1]] += 1
        (line,) = size.above(now, recorded)
        assert f"{changed[1]} {changed[0][changed[1]]}, recorded " in line


def test_a_new_folder_is_above_the_record() -> None:
    size = script("size")
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    now = copy.deepcopy(recorded)
    now["folders"]["new"] = {"lines": 1, "statements": 1, "branches": 0, "conditionals": 0}
    risen = ["new: lines 1, recorded 0", "new: statements 1, recorded 0"]
    assert size.above(now, recorded) == risen


def test_packed_code_and_wide_records_are_refused(tmp_path: Path) -> None:
    size = script("size")
    fields = "\n".join(f"    x{at}: int" for at in range(41))
    (tmp_path / "module.py").write_text(f"@dataclass(frozen=True)\nclass Wide:\n{fields}\n")
    now = {"folders": {"total": {"lines": 119, "statements": 100}}}
    assert size.misshaped(now, size.records(tmp_path)) == [
        "Wide: 41 fields",
        "1.19 lines per statement",
    ]
