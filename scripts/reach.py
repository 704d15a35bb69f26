"""Count the code that each command reaches.

    python scripts/reach.py [COMMAND ...]     code lines that each command's imports reach
    python scripts/reach.py --loaded          code lines that a run on a simulated machine loads
    python scripts/reach.py --path A B        the shortest chain of imports from A to B

Imports in functions count, and what those import; what is loaded by name does not (engines, and
the commands and lists of cli/table.py).
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from size import TOP, size_of

from gaudi_launch.cli.table import COMMANDS

PACKAGE = "gaudi_launch"
RUNS = (
    "ps",
    "doctor --machine simulated:hls2",
    "plan Qwen/Qwen3-8B -n 1 --machine simulated:hls2",
)


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Return the modules of the package that each of its modules imports."""
    files = {}
    for path in sorted((TOP / PACKAGE).rglob("*.py")):
        name = ".".join(path.relative_to(TOP).with_suffix("").parts)
        files[name.removesuffix(".__init__")] = path
    return {name: frozenset(_imported(path, files)) for name, path in files.items()}


def _imported(path: Path, known: Mapping[str, Path]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names}
    return found & known.keys()


def reached(begins: Iterable[str]) -> dict[str, str]:
    """Return each module that is reached, with the one that imports it first."""
    waiting = list(begins)
    found = dict.fromkeys(waiting, "")
    for name in waiting:
        for each in sorted(imports()[name]):
            if each not in found:
                found[each] = name
                waiting.append(each)
    return found


@cache
def lines(name: str) -> int:
    """Return the code lines of a module."""
    path = TOP / (name.replace(".", "/") + ".py")
    if not path.is_file():
        path = TOP / name.replace(".", "/") / "__init__.py"
    return size_of(path.read_text(encoding="utf-8")).lines


def of_command(name: str) -> int:
    """Return the code lines that a command reaches, the program's included."""
    module = f"{PACKAGE}.{COMMANDS[name][0]}"
    return sum(lines(each) for each in reached([f"{PACKAGE}.cli.main", module]))


def loaded(words: Sequence[str]) -> int:
    """Return the code lines of our modules that a run of the program has imported."""
    program = "import sys; from gaudi_launch.cli.main import run; run(sys.argv[1:]);"
    program += "print(*(m for m in sys.modules if m.startswith('gaudi_launch')), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True
    )
    return sum(lines(name) for name in done.stderr.splitlines()[-1].split())


def main() -> None:
    """Print a line for each command, or a chain of imports."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commands", nargs="*")
    parser.add_argument("--path", nargs=2, metavar=("FROM", "TO"))
    parser.add_argument("--loaded", action="store_true")
    given = parser.parse_args()
    if given.path:
        begin, end = (f"{PACKAGE}.{each}" for each in given.path)
        found = reached([begin])
        while end:
            print(end.removeprefix(f"{PACKAGE}."))
            end = found.get(end, "")
        return
    if given.loaded:
        for line in RUNS:
            print(f"{line.split()[0]:<12}{loaded(line.split()):>8,}")
        return
    for name in given.commands or COMMANDS:
        print(f"{name:<12}{of_command(name):>8,}")


if __name__ == "__main__":
    main()
