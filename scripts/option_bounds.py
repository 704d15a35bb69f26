"""Write the bounds of numeric options into the facts of engine releases.

    python scripts/option_bounds.py VLLM ENGINE-VERSION ...

VLLM is a folder with ``vllm/config`` and ``vllm/engine/arg_utils.py`` of these releases. Read are
``Field(gt=0, le=1)`` of a class of the configuration, and ``if self.field < 1: raise`` in its
methods; no code is executed. Of classes that only some models or options make, none is taken: what
they refuse is not always refused.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gaudi_launch.core.engines.facts.reading import render
from gaudi_launch.core.engines.version_facts import plain_option

SUPPORT = Path(__file__).resolve().parents[1] / "profiles" / "engines" / "support"
# the bound that remains where a comparison that raises is false
OPPOSITE = {ast.Lt: "ge", ast.LtE: "gt", ast.Gt: "le", ast.GtE: "lt"}
# EngineArgs.create_engine_config makes one of each
ALWAYS = ("ModelConfig", "CacheConfig", "ParallelConfig", "SchedulerConfig", "LoadConfig")
CHECKS = re.compile("_verify|_?validate|__post_init__")
BOUNDS = ("gt", "ge", "lt", "le")


def number(node: ast.expr) -> float | None:
    """Return the value of a written number, or None."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def of_field(node: ast.AnnAssign) -> dict[str, float]:
    """Return the bounds of ``name: type = Field(...)``, also inside of ``Annotated``."""
    found: dict[str, float] = {}
    for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
        if ast.unparse(call.func) == "Field":
            for keyword in call.keywords:
                value = number(keyword.value) if keyword.arg in BOUNDS else None
                if value is not None:
                    found[str(keyword.arg)] = value
    return found


def refused(test: ast.expr) -> Iterator[tuple[str, str, float]]:
    """Yield (field, bound, number) of a condition such as ``self.field < 1``."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        bound, value = OPPOSITE.get(type(test.ops[0])), number(test.comparators[0])
        field = test.left
        if (
            bound
            and value is not None
            and isinstance(field, ast.Attribute)
            and ast.unparse(field.value) == "self"
        ):
            yield field.attr, bound, value


def of_class(node: ast.ClassDef) -> dict[str, dict[str, float]]:
    """Return the bounds of each field of a class."""
    found: dict[str, dict[str, float]] = {}
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            found.setdefault(each.target.id, {}).update(of_field(each))
        if isinstance(each, ast.FunctionDef) and CHECKS.match(each.name):
            for field, bound, value in of_check(each):
                found.setdefault(field, {})[bound] = value
    return found


def of_check(function: ast.FunctionDef) -> Iterator[tuple[str, str, float]]:
    """Yield what a method refuses, of those statements that every call reaches."""
    for statement in function.body:
        if isinstance(statement, ast.If) and isinstance(statement.body[0], ast.Raise):
            yield from refused(statement.test)


def options(arg_utils: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield (option, class, field) of ``add_argument("--x", **kwargs["x"])``."""
    nodes = list(ast.walk(arg_utils))
    classes = {
        ast.unparse(node.targets[0]): ast.unparse(node.value.args[0])
        for node in nodes
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("get_kwargs(")
        if isinstance(node.value, ast.Call)
    }
    for node in nodes:
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("add_argument"):
            continue
        names = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
        given = [each.value for each in node.keywords if each.arg is None]
        for field in (each for each in given if isinstance(each, ast.Subscript)):
            owner = classes.get(ast.unparse(field.value))
            long = next((each for each in names if each.startswith("--")), "")
            if owner and long:
                yield plain_option(long), owner, ast.literal_eval(field.slice)


def read(vllm: Path) -> dict[str, dict[str, float]]:
    """Return the bounds by option of one release of vLLM."""
    files = [*vllm.glob("vllm/config.py"), *vllm.glob("vllm/config/*.py")]
    classes = {
        node.name: of_class(node)
        for path in files
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    text = (vllm / "vllm" / "engine" / "arg_utils.py").read_text(encoding="utf-8")
    found = {
        option: classes.get(name, {}).get(field, {})
        for option, name, field in options(ast.parse(text))
        if name in ALWAYS
    }
    return {option: bounds for option, bounds in found.items() if bounds}


def main(vllm: str, releases: list[str]) -> None:
    """Write the files."""
    found = read(Path(vllm))
    for release in releases:
        path = SUPPORT / f"{release}.json"
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name, row in document["options"].items():
            row.pop("bounds", None)
            bounds = found.get(plain_option(name))
            if bounds:
                row["bounds"] = bounds
        path.write_text(render(document), encoding="utf-8")
        print(release, len(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
