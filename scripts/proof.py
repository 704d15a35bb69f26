"""Find the tests that prove what black-box tests prove already.

    python scripts/proof.py record FOLDER [ARGUMENT OF PYTEST ...]
    python scripts/proof.py judge FOLDER
    python scripts/proof.py mutants FOLDER TESTS[,TESTS...] [--draw N] [--seed N]
    python scripts/proof.py share FOLDER [--draw N] [--seed N]

`record` runs the tests (Python 3.12 or later, in an environment with the extra `dev`) and records
which lines of the package each test function executes, with the processes that it starts
(scripts/line_recorder.py). `judge` lists the candidates: test functions in modules that are not in
tests/data/frozen.txt, without real programs and drawn inputs, of which the others execute every
line: frozen ones, and the shortest ones that execute what is left. The patches of their modules,
and the lines that no frozen function executes, are counted. `mutants` draws mutants on the lines
that the candidates in folders of tests execute (separated by commas), and judges them with the
cheapest of the others that reach one, then with the candidates. `share` draws 100 mutants over the
complete package (`--seed N`), and judges them with the cheapest functions that reach one, of those
that are here today.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import itertools
import json
import os
import re
import shutil
import site
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import line_recorder
from mutants import modules_of
from mutation import drawn_on
from size import size_of

TOP = Path(__file__).resolve().parents[1]
FROZEN = TOP / "tests" / "data" / "frozen.txt"
_NAME = "gaudi_launch_line_recorder"
_PATCH = re.compile(r"monkeypatch\.setattr|SimpleNamespace\(|\b[a-z]\w*\._[a-z]\w*")
# drawn inputs, real programs, signals and clients
_REAL = re.compile(r"@given\(|\brandom\.|Popen\(|subprocess\.|SIGKILL|short_form\(|\bHub\(")
# of a test function that judges mutants
_MOST_SECONDS = 6.0


@dataclass(frozen=True)
class Judged:
    """A test function with its code lines, and the patches of its module.

    ``executed`` lines of the package, ``alone`` those that no frozen function executes.
    ``is_candidate``: the tests that stay execute all of them.
    """

    test: str
    lines: int
    patches: int
    executed: int
    alone: int
    is_candidate: bool


def frozen_tests(tests: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """Return the test functions of modules that the frozen list names.

    The last pattern decides; one after "!" takes modules out.
    """
    found = set()
    for test in tests:
        module = test.partition("::")[0]
        named = (each for each in reversed(patterns) if fnmatch.fnmatch(module, each.lstrip("!")))
        if not next(named, "!").startswith("!"):
            found.add(test)
    return found


def patterns_of(text: str) -> list[str]:
    """Return the patterns of a frozen list: one a line, comments apart."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def executed_lines(folder: Path) -> dict[str, set[str]]:
    """Return the lines of the package that each test function executes."""
    found: dict[str, set[str]] = {}
    for each in folder.iterdir():
        lines = found.setdefault(each.name.replace("+", "/"), set())
        for record in each.iterdir():
            # the last line of a killed process may be cut off
            lines |= {line for line in record.read_text().split("\n")[:-1] if ":" in line}
    return found


def judged(executed: Mapping[str, set[str]], frozen: set[str]) -> list[Judged]:
    """Return each test function that is not frozen, candidates first, by module."""
    lines, patches, real = _sources(executed.keys() - frozen)
    stay = frozen | real
    left = {test: executed[test] for test in lines if test not in stay and executed[test]}
    rest = left.keys() - _needed(left, lines, _united(executed, stay))
    proved = _united(executed, frozen)
    found = [
        Judged(
            test,
            count,
            patches[test],
            len(executed[test]),
            len(executed[test] - proved),
            test in rest,
        )
        for test, count in lines.items()
    ]
    return sorted(found, key=lambda each: (not each.is_candidate, each.test))


def _united(executed: Mapping[str, set[str]], tests: Iterable[str]) -> set[str]:
    return set[str]().union(*(executed.get(each, set()) for each in tests))


def _needed(left: Mapping[str, set[str]], lines: Mapping[str, int], proved: set[str]) -> set[str]:
    """Return few and short functions that execute what only these execute."""
    alone = {test: executed - proved for test, executed in left.items()}
    missing = _united(alone, alone)
    needed: set[str] = set()
    while missing:
        best = max(alone, key=lambda test: (len(alone[test] & missing) / lines[test], test))
        missing -= alone.pop(best)
        needed.add(best)
    return needed


def _sources(tests: Iterable[str]) -> tuple[dict[str, int], dict[str, int], set[str]]:
    """Return lines of functions, patches of their modules, and the real ones."""
    lines: dict[str, int] = {}
    patches: dict[str, int] = {}
    real: set[str] = set()
    for module, names in itertools.groupby(sorted(tests), lambda each: each.partition("::")[0]):
        path = TOP / module
        if not path.is_file():
            continue
        source = path.read_text(encoding="utf-8")
        texts = _functions(source)
        for test in names:
            text = texts.get(test.rpartition("::")[2], "")
            if not text:
                continue
            lines[test] = size_of(text).lines
            patches[test] = len(_PATCH.findall(source))
            if _REAL.search(text):
                real.add(test)
    return lines, patches, real


def _functions(source: str) -> dict[str, str]:
    """Return the source of each function with its decorators, by name."""
    rows = source.splitlines()
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found[node.name] = "\n".join(rows[first - 1 : node.end_lineno])
    return found


class Draw(argparse.Namespace):
    """A number of mutants, by a seed."""

    draw: int
    seed: int


@contextmanager
def _installed() -> Iterator[None]:
    """Let every interpreter of this environment import the recorder."""
    here = Path(site.getsitepackages()[0])
    module, path = here / f"{_NAME}.py", here / f"{_NAME}.pth"
    shutil.copy(line_recorder.__file__, module)
    starts = f"os.environ.get({line_recorder.FOLDER!r}) and __import__({_NAME!r}).start()"
    path.write_text(f"import os; {starts}\n")
    try:
        yield
    finally:
        path.unlink()
        module.unlink()


def record(folder: Path, arguments: Sequence[str]) -> int:
    """Run the tests, and record the lines. Return the exit status of pytest."""
    folder.mkdir(parents=True)
    words = (sys.executable, "-m", "pytest", "-p", _NAME, *arguments)
    env = {**os.environ, line_recorder.FOLDER: str(folder.resolve())}
    with _installed():
        return subprocess.run(words, cwd=TOP, env=env, check=False).returncode


def mutate(folder: Path, tests: str, draw: Draw) -> int:
    """Judge mutants by the tests that stay, then by candidates in folders.

    Print what only the candidates notice. Return the exit status of scripts/mutation.py.
    """
    executed, frozen = _read(folder)
    candidates = {each.test for each in judged(executed, frozen) if each.is_candidate}
    folders = tuple(f"{each}/" for each in tests.split(","))
    here = {each for each in candidates if each.startswith(folders)}
    base = folder.resolve().with_name(tests.replace("/", ".").replace(",", "+"))
    last, results = base.with_name(f"{base.name}.last"), base.with_name(f"{base.name}.json")
    last.write_text("\n".join(sorted(candidates)), encoding="utf-8")
    code = sorted(_united(executed, here))
    words = ("--last", str(last), "--json", str(results))
    status = _judge(base, code, executed, draw, words)
    if status:
        return status
    mutants = json.loads(results.read_text(encoding="utf-8"))["mutants"]
    only = [each["by"] for each in mutants if each["by"].partition("[")[0] in candidates]
    print(f"{tests}: {len(here)} candidates, {len(only)} of {len(mutants)} mutants by them only")
    print("\n".join(sorted(only)))
    return 0


def share(folder: Path, draw: Draw) -> int:
    """Judge mutants of the complete package; return the exit status."""
    code = [
        f"{path.relative_to(TOP).as_posix()}:{number}"
        for path in modules_of(TOP / "gaudi_launch")
        for number in range(1, 1 + len(path.read_text(encoding="utf-8").splitlines()))
    ]
    base = folder.resolve().with_name(f"share-{draw.seed}")
    return _judge(base, code, executed_lines(folder), draw, ("--seconds", "60"))


def _judge(
    base: Path,
    code: Sequence[str],
    executed: Mapping[str, set[str]],
    draw: Draw,
    words: Sequence[str],
) -> int:
    """Draw mutants on lines of code; judge them by the cheapest tests."""
    chosen = drawn_on(code, draw)
    files: dict[str, set[str]] = defaultdict(set)
    for line in _united(executed, executed):
        files[line.partition(":")[0]].add(line)
    starts: list[str] = []
    lines: set[str] = set()
    for each in chosen:
        name = each.path.relative_to(TOP).as_posix()
        starts.append(f"{name}:{each.start[0]}")
        # the record has no code that runs at the import
        lines |= {f"{name}:{line}" for line in each.lines} if each.function else files[name]
    places = base.with_name(f"{base.name}.lines")
    places.write_text("\n".join(starts), encoding="utf-8")
    tests = {test: theirs & lines for test, theirs in executed.items()}
    words = ("--lines", str(places), "--draw", str(draw.draw), "--seed", str(draw.seed), *words)
    words = ("scripts/mutation.py", *words, "--tests", *cheapest(tests, lines, times=10))
    return subprocess.run((sys.executable, *words), cwd=TOP, check=False).returncode


def cheapest(tests: Mapping[str, set[str]], lines: set[str], times: int) -> list[str]:
    """Return cheap test functions that execute each line so often, if possible.

    Those that are not here any more are left out, and slow ones: most of them start programs,
    which do not have the mutant.
    """
    left = dict.fromkeys(lines, times)
    slow = json.loads((TOP / "tests" / "data" / "durations.json").read_text(encoding="utf-8"))
    here = _sources(each for each, executed in tests.items() if executed)[0]
    seconds = {}
    for each in here:
        module, _, name = each.removeprefix("tests/").partition("::")
        seconds[each] = 0.05 + slow.get(module, {}).get(name, 0.0)
    chosen: list[str] = []
    quick = [each for each in here if seconds[each] < _MOST_SECONDS]
    for each in sorted(quick, key=lambda test: (seconds[test], test)):
        if any(left[line] > 0 for line in tests[each]):
            chosen.append(each)
            for line in tests[each]:
                left[line] -= 1
    return chosen


def _read(folder: Path) -> tuple[dict[str, set[str]], set[str]]:
    executed = executed_lines(folder)
    return executed, frozen_tests(executed, patterns_of(FROZEN.read_text(encoding="utf-8")))


def main() -> int:
    """Record, judge or draw mutants, as the arguments state."""
    parser = argparse.ArgumentParser(description="Find tests that prove a thing twice.")
    parser.add_argument("what", choices=("record", "judge", "mutants", "share"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draw", type=int, default=100)
    parser.add_argument("--seed", type=int, default=24)
    given, rest = parser.parse_known_args(namespace=Draw())
    if given.what == "record":
        return record(given.folder, rest)
    if given.what == "mutants":
        return mutate(given.folder, rest[0], given)
    if given.what == "share":
        return share(given.folder, given)
    executed, frozen = _read(given.folder)
    print("candidate\tlines\tpatches\texecuted\talone\ttest")
    for each in judged(executed, frozen):
        word = "yes" if each.is_candidate else "no"
        print(word, each.lines, each.patches, each.executed, each.alone, each.test, sep="\t")
    return 0


if __name__ == "__main__":
    sys.exit(main())
