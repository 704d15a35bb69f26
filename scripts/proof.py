"""Find the test modules that prove what black-box tests prove already.

    python scripts/proof.py record FOLDER [ARGUMENT OF PYTEST ...]
    python scripts/proof.py judge FOLDER
    python scripts/proof.py mutants FOLDER TESTS [ARGUMENT OF mutation.py ...]

`record` runs the tests (Python 3.12 or later, in an environment with the extra `dev`) and records
which lines of the package each test module executes, with the processes that it starts
(scripts/line_recorder.py). `judge` lists the candidates: modules that are not in
tests/data/frozen.txt, that patch, and of which frozen modules execute every line. The lines that
only one module executes are counted for the others. `mutants` draws mutants on the lines that the
candidates in a folder of tests execute, and judges them with the frozen modules that reach one.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import line_recorder
from size import size_of

TOP = Path(__file__).resolve().parents[1]
FROZEN = TOP / "tests" / "data" / "frozen.txt"
_NAME = "gaudi_launch_line_recorder"
_PATCH = re.compile(r"monkeypatch\.setattr|SimpleNamespace\(|\b[a-z]\w*\._[a-z]\w*")


@dataclass(frozen=True)
class Judged:
    """A test module with its code lines and patches.

    ``executed`` lines of the package, ``alone`` those that no frozen module executes.
    """

    module: str
    lines: int
    patches: int
    executed: int
    alone: int

    @property
    def is_candidate(self) -> bool:
        """Return True where it patches, and proves no line by itself."""
        return self.patches > 0 and self.executed > 0 and self.alone == 0


def frozen_modules(modules: Sequence[str], patterns: Sequence[str]) -> set[str]:
    """Return the modules that a pattern of the frozen list names."""
    return {each for each in modules if any(fnmatch.fnmatch(each, one) for one in patterns)}


def patterns_of(text: str) -> list[str]:
    """Return the patterns of a frozen list: one a line, comments apart."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def executed_lines(folder: Path) -> dict[str, set[str]]:
    """Return the lines of the package that each test module executes, by its path."""
    found: dict[str, set[str]] = {}
    for each in folder.iterdir():
        lines = found.setdefault(each.name.replace("+", "/"), set())
        for record in each.iterdir():
            # the last line of a killed process may be cut off
            lines |= {line for line in record.read_text().split("\n")[:-1] if ":" in line}
    return found


def judged(executed: Mapping[str, set[str]], frozen: set[str]) -> list[Judged]:
    """Return each module that is not frozen, candidates first, the largest first."""
    proved = set[str]().union(*(executed.get(each, set()) for each in frozen))
    found = []
    for module in executed.keys() - frozen:
        path = TOP / module
        if path.is_file():
            source = path.read_text(encoding="utf-8")
            patches = len(_PATCH.findall(source))
            mine = executed[module]
            counts = (size_of(source).lines, patches, len(mine), len(mine - proved))
            found.append(Judged(module, *counts))
    return sorted(found, key=lambda each: (not each.is_candidate, -each.lines, each.module))


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


def mutate(folder: Path, tests: str, arguments: Sequence[str]) -> int:
    """Judge mutants of what a folder's candidates execute with the frozen modules.

    Return the exit status of scripts/mutation.py.
    """
    executed, frozen = _read(folder)
    here = [each.module for each in judged(executed, frozen) if each.is_candidate]
    mine = [executed[each] for each in here if each.startswith(f"{tests}/")]
    lines = set[str]().union(*mine)
    reaching = sorted(each for each in frozen if executed.get(each, set()) & lines)
    # its sandbox has an empty /tmp
    file = folder.resolve().with_name(f"{tests.replace('/', '.')}.lines")
    file.write_text("\n".join(lines), encoding="utf-8")
    words = (sys.executable, "scripts/mutation.py", "--lines", str(file), *arguments)
    return subprocess.run([*words, "--tests", *reaching], cwd=TOP, check=False).returncode


def _read(folder: Path) -> tuple[dict[str, set[str]], set[str]]:
    executed = executed_lines(folder)
    return executed, frozen_modules([*executed], patterns_of(FROZEN.read_text(encoding="utf-8")))


def main() -> int:
    """Record, judge or draw mutants, as the arguments state."""
    parser = argparse.ArgumentParser(description="Find test modules that prove a thing twice.")
    parser.add_argument("what", choices=("record", "judge", "mutants"))
    parser.add_argument("folder", type=Path)
    given, rest = parser.parse_known_args()
    if given.what == "record":
        return record(given.folder, rest)
    if given.what == "mutants":
        return mutate(given.folder, rest[0], rest[1:])
    executed, frozen = _read(given.folder)
    print("candidate\tlines\tpatches\texecuted\talone\tmodule")
    for each in judged(executed, frozen):
        word = "yes" if each.is_candidate else "no"
        print(word, each.lines, each.patches, each.executed, each.alone, each.module, sep="\t")
    return 0


if __name__ == "__main__":
    sys.exit(main())
