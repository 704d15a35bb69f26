"""The seconds of each test: they decide selection, order and cases.

WRITE_DURATIONS=1 writes the file with what a run took: it replaces the modules that ran.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.places import DATA

_FILE = DATA / "durations.json"
# shorter tests are not written: they would change the file with each run
_LEAST_SECONDS = 0.3
_MOST_SECONDS_OF_A_MODULE = 5.0
_MOST_SECONDS_OF_A_TABLE = 2.0
_LEAST_CASES = 2


def read(file: Path = _FILE) -> dict[str, dict[str, float]]:
    """Return the seconds of each slow test function, by module (a path below tests)."""
    found: dict[str, dict[str, float]] = json.loads(file.read_text(encoding="utf-8"))
    return found


SECONDS = read()
SLOW_MODULES = frozenset(
    name for name, tests in SECONDS.items() if sum(tests.values()) > _MOST_SECONDS_OF_A_MODULE
)


def of(id: str) -> float:
    """Return the seconds of the function of a node id; 0 for a short one."""
    module, _, function = id.removeprefix("tests/").partition("::")
    return SECONDS.get(module, {}).get(function.partition("[")[0], 0.0)


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


def drawn_cases(ids: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the cases that a usual run takes of each long table, the same each time.

    By test function; each case with the number of cases that it stands for. ``ids`` are pytest's,
    below tests.
    """
    tables: dict[str, list[str]] = defaultdict(list)
    for id in ids:
        tables[id.partition("[")[0]].append(id)
    found: dict[str, dict[str, float]] = {}
    for function, cases in tables.items():
        seconds = of(function)
        count = int(len(cases) * _MOST_SECONDS_OF_A_TABLE / seconds) if seconds else len(cases)
        count = max(count, _LEAST_CASES)
        if count < len(cases):
            chosen = random.Random(function).sample(cases, count)
            found[function] = dict.fromkeys(chosen, len(cases) / count)
    return found
