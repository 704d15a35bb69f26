"""The public interface has all that tests/data/interface records.

`python scripts/interface.py` writes the record anew; its difference shows what went.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import TOP
from tests.support.scripts import script

RECORD = TOP / "tests" / "data" / "interface"
NAMES = ("commands", "exit_codes", "messages", "json", "examples")

Documents = dict[str, dict[str, Any]]


def read(folder: Path) -> Documents:
    """Return the documents of a folder by name."""
    files = {name: folder / f"{name}.json" for name in NAMES}
    return {
        name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.exists()
    }


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    """Return the interface of this tree, collected by the script in a process of its own."""
    folder = tmp_path_factory.mktemp("interface")
    made = subprocess.run(
        [sys.executable, str(TOP / "scripts" / "interface.py"), str(folder)],
        capture_output=True,
        text=True,
    )
    assert (made.returncode, made.stderr) == (0, "")
    return read(folder)


def _parts(value: Any, place: str) -> Iterator[str]:
    """Yield a line for each plain value below a place."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _parts(below, f"{place} {name}")
    elif isinstance(value, list):
        for below in value:
            yield from _parts(below, f"{place}[]")
    else:
        yield f"{place} = {value}"


def test_nothing_that_is_recorded_is_gone(current: Documents) -> None:
    # it went on purpose: python scripts/interface.py
    gone = set(_parts(read(RECORD), "")) - set(_parts(current, ""))
    assert sorted(gone) == []


def test_every_key_has_a_meaning(current: Documents) -> None:
    missing = script("reference").without_meaning(current["json"])
    assert missing == [], (
        "add them to scripts/reference/json_keys.yaml; python scripts/reference.py"
    )


def test_every_number_has_a_unit(current: Documents) -> None:
    assert script("reference").without_unit(current["json"]) == [], "the unit may be none"


def test_the_page_of_the_keys_is_current(current: Documents) -> None:
    pages = script("reference").json_pages(current["json"], current["examples"])
    shown = {name: (TOP / "docs" / name).read_text(encoding="utf-8") for name in pages}
    assert shown == pages, "run python scripts/reference.py"
