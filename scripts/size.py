"""Report how large and how dense the project is; refuse what is above the record.

By folder of the package: code lines (no blank lines, comments or docstrings), AST statements,
branches (``if``, loops, ``except``, ``case``, conditions of comprehensions, conditional
expressions, each ``and`` or ``or``) and conditional expressions. For the project: what `sums`
counts. Cyclomatic complexity is ruff's (rule C901).

    python scripts/size.py           a table by folder, and the sums
    python scripts/size.py --check   exit 1 when a figure is above tests/data/size.json
    python scripts/size.py --write   record the figures of this tree, and print those that rose
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]
RECORD = TOP / "tests" / "data" / "size.json"
# code lines per AST statement of the package: less is packed, more is stretched
_LEAST_RATIO, _MOST_RATIO = 1.20, 1.30
_MOST_FIELDS = 40
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
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
class Size:
    """The counts of some modules."""

    lines: int = 0
    statements: int = 0
    branches: int = 0
    conditionals: int = 0

    def add(self, other: Size) -> None:
        """Add the counts of other modules."""
        self.lines += other.lines
        self.statements += other.statements
        self.branches += other.branches
        self.conditionals += other.conditionals


@cache
def size_of(source: str) -> Size:
    """Return the counts of one module's text, which `folders` and `reach` both need."""
    nodes = list(ast.walk(ast.parse(source)))
    return Size(
        len(_code_lines(source, nodes)),
        sum(isinstance(node, ast.stmt) for node in nodes),
        sum(map(_branches, nodes)),
        sum(isinstance(node, ast.IfExp) for node in nodes),
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
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            found.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return found


# commands whose reach is recorded
REACHED = ("ps", "check", "devices", "doctor", "plan", "serve")


def folders(package: Path) -> dict[str, Size]:
    """Return the counts by folder of the package, and those of all as ``total``."""
    found: defaultdict[str, Size] = defaultdict(Size)
    for path, source in _sources(package):
        parts = path.relative_to(package).parts
        counted = size_of(source)
        folders = parts[:-1]
        if folders[:1] not in (("core",), ("extensions",)):
            folders = folders[:1]
        found["/".join(folders[:2]) or "(top)"].add(counted)
        found["total"].add(counted)
    return dict(sorted(found.items()))


def _sources(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, path.read_text(encoding="utf-8")


def sums(top: Path = TOP) -> dict[str, int]:
    """Return what is counted for the project.

    Records are dataclasses, NamedTuples and TypedDicts; ``__init__.py`` is not a module.
    """
    import interface
    import reach

    from gaudi_launch.core.base.messages import catalogue

    package = top / "gaudi_launch"
    described = (top / "pyproject.toml").read_text(encoding="utf-8")
    (required,) = re.findall(r"(?ms)^dependencies = \[(.+?)^\]", described)
    commands = interface.commands()
    tests = [source for _, source in _sources(top / "tests")]
    return {
        "modules": sum(path.name != "__init__.py" for path, _ in _sources(package)),
        "commands": len(commands),
        "options": sum(len(entry["options"]) for entry in commands.values()),
        "messages": len(catalogue("en")),
        "records": len(records(package)),
        "dependencies": len(re.findall(r'(?m)^ +"', required)),
        "test_lines": sum(size_of(source).lines for source in tests),
        "monkeypatch": sum(len(re.findall(r"\bmonkeypatch\.", source)) for source in tests),
        "goldens": sum(path.is_file() for path in (top / "tests/data/golden").rglob("*")),
        # pairs of modules that break the floors
        "exceptions": len(set(re.findall(r'"gaudi_launch\.\S+ -> \S+"', described))),
        **{f"reach {name}": reach.of_command(name) for name in REACHED},
    }


@cache
def records(package: Path) -> list[tuple[str, int]]:
    """Return name and number of fields of each record class."""
    return [
        (node.name, sum(isinstance(part, ast.AnnAssign) for part in node.body))
        for _, source in _sources(package)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and _is_record(node)
    ]


def _is_record(node: ast.ClassDef) -> bool:
    marks = [*node.decorator_list, *node.bases]
    return any(
        re.search(r"\b(dataclass|NamedTuple|TypedDict)\b", ast.unparse(mark)) for mark in marks
    )


def measured(top: Path = TOP) -> dict[str, Any]:
    """Return the figures of a tree."""
    sizes = folders(top / "gaudi_launch")
    return {
        "folders": {name: asdict(size) for name, size in sizes.items()},
        "sums": sums(top),
    }


def above(now: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    """Return a line for each figure above the record; a new folder has a record of 0."""
    found = list(_larger("", now["sums"], recorded["sums"]))
    for name, figures in now["folders"].items():
        limits = recorded["folders"].get(name, dict.fromkeys(figures, 0))
        found += _larger(f"{name}: ", figures, limits)
    return found


def _larger(where: str, figures: Mapping[str, float], limits: Mapping[str, float]) -> Iterator[str]:
    for name, figure in figures.items():
        limit = limits.get(name, 0)
        if figure > limit:
            yield f"{where}{name} {figure}, recorded {limit}"


def misshaped(now: Mapping[str, Any], fields: Iterable[tuple[str, int]]) -> list[str]:
    """Return a line for packed code and for each record with too many fields."""
    total = now["folders"]["total"]
    ratio = total["lines"] / max(1, total["statements"])
    found = [f"{name}: {count} fields" for name, count in fields if count > _MOST_FIELDS]
    if not _LEAST_RATIO <= ratio <= _MOST_RATIO:
        found.append(f"{ratio:.2f} lines per statement")
    return found


def main() -> int:
    reader = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reader.add_argument("--check", action="store_true")
    reader.add_argument("--write", action="store_true")
    options = reader.parse_args()
    now = measured()
    found: list[str] = []
    if RECORD.exists():
        found = above(now, json.loads(RECORD.read_text(encoding="utf-8")))
    if options.write:
        RECORD.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    if options.check:
        found += misshaped(now, records(TOP / "gaudi_launch"))
    if options.write or options.check:
        print("\n".join(found))
        return int(options.check and bool(found))
    print(f"{'folder':<14}{'lines':>8}{'statements':>12}{'branches':>10}{'conditionals':>14}")
    for name, row in now["folders"].items():
        counts = f"{name:<14}{row['lines']:>8}{row['statements']:>12}"
        print(f"{counts}{row['branches']:>10}{row['conditionals']:>14}")
    for name, figure in now["sums"].items():
        print(f"{name:<14}{figure:>8}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
