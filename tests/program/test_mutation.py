"""Mutants: which are made, which are left out, and that the tests of central rules notice them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.places import TOP
from tests.support.scripts import script

SCRIPT = TOP / "scripts" / "mutation.py"


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    # its libcst takes most of a second: only where it is used
    pytest.importorskip("mutmut.mutation.mutators", reason="mutmut is in the extra dev")
    return script("mutants")


def changed(mutants: ModuleType, path: Path, text: str) -> list[tuple[str | None, str]]:
    """Return the function and the new line of each mutant of a text."""
    path.write_text(text, encoding="utf-8")
    found = []
    for each in mutants.mutants_of(path):
        assert each.differs
        function = each.function.name if each.function else None
        found.append((function, each.diff.splitlines()[-1]))
    return found


def test_operators_numbers_texts_and_arguments_change(mutants: ModuleType, tmp_path: Path) -> None:
    text = "LIMIT = 8\n\n\ndef few(rows):\n    return count(rows, 'x') + 1 <= LIMIT\n"
    assert changed(mutants, tmp_path / "module.py", text) == [
        (None, "+LIMIT = None"),
        (None, "+LIMIT = 9"),
        ("few", "+    return count(rows, 'x') - 1 <= LIMIT"),
        ("few", "+    return count(None, 'x') + 1 <= LIMIT"),
        ("few", "+    return count(rows, None) + 1 <= LIMIT"),
        ("few", "+    return count('x') + 1 <= LIMIT"),
        ("few", "+    return count(rows, ) + 1 <= LIMIT"),
        ("few", "+    return count(rows, 'XXxXX') + 1 <= LIMIT"),
        ("few", "+    return count(rows, 'x') + 2 <= LIMIT"),
        ("few", "+    return count(rows, 'x') + 1 < LIMIT"),
    ]


def test_parentheses_and_lines_around_a_change_stay(mutants: ModuleType, tmp_path: Path) -> None:
    text = (
        "class A:\n    @property\n    def b(self):\n"
        "        return (\n            not (x is y)\n        )\n"
    )
    assert changed(mutants, tmp_path / "module.py", text) == [
        ("A.b", "+            (x is y)"),
        ("A.b", "+            not (x is not y)"),
    ]


def test_what_no_test_can_notice_is_left_out(mutants: ModuleType, tmp_path: Path) -> None:
    text = '''"""A docstring."""
from typing import TYPE_CHECKING, Literal, cast
if TYPE_CHECKING:
    X = 1
Kind = Literal["a", "b"]
@dataclass(frozen=True)
class Row:
    "One."
    kind: Literal["a"]
@lru_cache(maxsize=5)
def read(path: "Path", kind) -> "Kind":
    """Return it."""
    _log.debug("read %s", path)
    if not kind:
        raise AssertionError("no kind")
    return cast("Kind", path.read_text(encoding="utf-8"))
if __name__ == "__main__":
    main(1)
'''
    assert changed(mutants, tmp_path / "module.py", text) == [("read", "+    if kind:")]


@pytest.mark.usefixtures("mutants")
def test_the_tests_of_central_rules_notice_twenty_drawn_mutants(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    words = ["core/planning/decisions", "--draw", "20", "--no-sandbox"]
    quickly = ["--at-least", "100", "--json", str(results)]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words, *quickly],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(results.read_text(encoding="utf-8"))["mutants"]
    assert [each["outcome"] for each in found] == ["killed"] * 20
