"""The seconds of each test, which decide the short selection and the order.

WRITE_DURATIONS=1 writes the file with what a run took: it replaces the modules that ran.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.support.places import DATA

_FILE = DATA / "durations.json"
# shorter tests are not written: they would change the file with each run
_LEAST_SECONDS = 0.3
_MOST_SECONDS_OF_A_MODULE = 5.0


def read(file: Path = _FILE) -> dict[str, dict[str, float]]:
    """Return the seconds of each slow test function, by module (a path below tests)."""
    found: dict[str, dict[str, float]] = json.loads(file.read_text(encoding="utf-8"))
    return found


SECONDS = read()
SLOW_MODULES = frozenset(
    name for name, tests in SECONDS.items() if sum(tests.values()) > _MOST_SECONDS_OF_A_MODULE
)


def write(taken: Mapping[str, float], file: Path = _FILE) -> None:
    """Record the seconds of a run, by pytest's node ids."""
    modules: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for id, seconds in taken.items():
        module, _, function = id.removeprefix("tests/").partition("::")
        modules[module][function.partition("[")[0]] += seconds
    known = read(file)
    for module, tests in modules.items():
        slow = {name: round(each, 1) for name, each in tests.items() if each >= _LEAST_SECONDS}
        known[module] = dict(sorted(slow.items()))
    kept = {module: tests for module, tests in sorted(known.items()) if tests}
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
