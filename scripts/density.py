"""Report how dense the code is, and refuse what is denser than recorded.

Counted are code lines (no blank lines, comments or docstrings), and per 100 of them the branches:
``if``, ``elif``, loops, ``except``, ``case``, conditions of comprehensions, conditional expressions
and each ``and`` or ``or``. Cyclomatic complexity is ruff's (rule C901).

    python scripts/density.py                 a table by package
    python scripts/density.py --check FILE    exit 1 when a package is denser than FILE says
    python scripts/density.py --write FILE    record today's figures
    python scripts/density.py --functions 20  the 20 functions with the most branches
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "gaudi_launch"
LONGEST_LINE = 100
# figures are rounded to one decimal before they are compared
_COMPARED = ("branches", "conditionals")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass
class Density:
    """The counts of some modules; ``wide`` are lines of more than 100 columns."""

    modules: int = 0
    lines: int = 0
    branches: int = 0
    conditionals: int = 0
    wide: int = 0

    def add(self, other: Density) -> None:
        """Add the counts of other modules."""
        self.modules += other.modules
        self.lines += other.lines
        self.branches += other.branches
        self.conditionals += other.conditionals
        self.wide += other.wide

    def to_json(self) -> dict[str, float]:
        """Return branches per 100 lines, the rest per 1,000 lines."""
        lines = max(1, self.lines)
        return {
            "modules": self.modules,
            "lines": self.lines,
            "branches": round(100 * self.branches / lines, 1),
            "conditionals": round(1000 * self.conditionals / lines, 1),
            "wide": round(1000 * self.wide / lines, 1),
        }


def density_of(source: str) -> Density:
    """Return the counts of one module's text."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    conditionals = sum(isinstance(node, ast.IfExp) for node in nodes)
    wide = sum(len(line) > LONGEST_LINE for line in source.splitlines())
    return Density(
        1, len(_code_lines(source, nodes)), sum(map(_branches, nodes)), conditionals, wide
    )


def _branches(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return len(node.ifs)
    return int(isinstance(node, (ast.If, *_LOOPS, ast.ExceptHandler, ast.IfExp, ast.match_case)))


def _code_lines(source: str, nodes: Iterable[ast.AST]) -> set[int]:
    """Return the numbers of the lines with code; a docstring is none."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in nodes:
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            found.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return found


def by_package(root: Path = PACKAGE) -> dict[str, Density]:
    """Return the counts of each package, and those of all of them as ``total``."""
    found: defaultdict[str, Density] = defaultdict(Density)
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        name = parts[0] if len(parts) > 1 else "(top)"
        counted = density_of(path.read_text(encoding="utf-8"))
        found[name].add(counted)
        found["total"].add(counted)
    return dict(found)


def functions(root: Path = PACKAGE) -> list[tuple[int, str]]:
    """Return the branches of each function, most first, with its module and line.

    Stricter than ruff's C901, which does not count conditional expressions, ``and`` and ``or``.
    A function inside another counts for both.
    """
    found = []
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                place = f"{path.relative_to(root)}:{node.lineno} {node.name}"
                found.append((1 + sum(map(_branches, ast.walk(node))), place))
    return sorted(found, key=lambda pair: (-pair[0], pair[1]))


def denser(now: Mapping[str, Density], recorded: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a sentence for each figure that is above the recorded one.

    A package without a record is compared with the total.
    """
    found = []
    for name, density in now.items():
        figures = density.to_json()
        limits = recorded.get(name, recorded["total"])
        found += [
            f"{name}: {figure} {figures[figure]}, recorded {limits[figure]}"
            for figure in _COMPARED
            if figures[figure] > limits[figure]
        ]
    return found


def main() -> int:
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reader.add_argument("--root", type=Path, default=PACKAGE)
    reader.add_argument("--check", type=Path, metavar="FILE")
    reader.add_argument("--write", type=Path, metavar="FILE")
    reader.add_argument("--functions", type=int, metavar="N")
    options = reader.parse_args()
    if options.functions:
        for branches, place in functions(options.root)[: options.functions]:
            print(f"{branches:>5}  {place}")
        return 0
    now = by_package(options.root)
    rows = {name: density.to_json() for name, density in now.items()}
    if options.write:
        options.write.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if options.check:
        found = denser(now, json.loads(options.check.read_text(encoding="utf-8")))
        print("\n".join(found))
        return 1 if found else 0
    print(
        f"{'package':<16}{'modules':>8}{'lines':>8}{'branches/100':>14}{'conditionals/1000':>19}{'wide/1000':>11}"
    )
    for name, row in sorted(rows.items(), key=lambda pair: pair[0] == "total"):
        counts = f"{name:<16}{row['modules']:>8}{row['lines']:>8}"
        print(f"{counts}{row['branches']:>14}{row['conditionals']:>19}{row['wide']:>11}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
