"""The seam between the program and its engines: each question is a declared member of one base
class."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_launch.engines import registry
from gaudi_launch.planning.engine import Engine

PACKAGE = Path(registry.__file__).parents[1]
DECLARED = {name for name in vars(Engine) if not name.startswith("_")}


@pytest.mark.parametrize("name", registry.ENGINES)
def test_each_engine_is_the_base_class_and_overrides_only_what_it_declares(name: str) -> None:
    engine = registry.find(name)
    assert isinstance(engine, Engine)
    for member in DECLARED & vars(type(engine)).keys():
        declared, own = vars(Engine)[member], vars(type(engine))[member]
        assert isinstance(own, property) == isinstance(declared, property), member
        if not isinstance(declared, property):
            assert [*inspect.signature(own).parameters] == [
                *inspect.signature(declared).parameters
            ], member


def _reached_by_name(tree: ast.AST) -> Iterator[str]:
    """Members of engines that code reaches by a string: getattr(engine, "place", None)."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id not in ("getattr", "hasattr") or len(node.args) < 2:
            continue
        member = node.args[1]
        if isinstance(member, ast.Constant) and member.value in DECLARED:
            yield str(member.value)


def test_no_module_reaches_a_member_of_an_engine_by_its_name() -> None:
    found = {
        str(path.relative_to(PACKAGE)): [
            *_reached_by_name(ast.parse(path.read_text(encoding="utf-8")))
        ]
        for path in PACKAGE.rglob("*.py")
    }
    # the cause of an exception, not an engine's inner engine
    found.pop("models/network.py", None)
    assert {path: names for path, names in found.items() if names} == {}
