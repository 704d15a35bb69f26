"""Read the syntax trees of an engine's files."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

_Node = TypeVar("_Node", bound=ast.AST)


# the time (`time.monotonic`) at which reading ends
UNTIL: ContextVar[float] = ContextVar("UNTIL", default=float("inf"))


class FactsError(ValueError):
    """Raised for source of another form than the readers know."""


def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of one file. Raises FactsError after `UNTIL`."""
    if time.monotonic() > UNTIL.get():
        raise FactsError(f"{path}: no time is left to read it")
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def nodes(tree: ast.AST, kind: type[_Node], name: str = "") -> Iterator[_Node]:
    """Yield the nodes of a kind at any depth, with a name only those so called."""
    for node in ast.walk(tree):
        if isinstance(node, kind) and name in ("", getattr(node, "name", "")):
            yield node


def assigned(tree: ast.Module | ast.ClassDef) -> dict[str, ast.expr]:
    """Return the names assigned in a module or class with their expressions."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = node.value
    return found


def text_of(node: ast.AST | None) -> str | None:
    """Return a string constant; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def texts_of(node: ast.AST) -> list[str]:
    """Return the string constants at any depth."""
    return [text for each in nodes(node, ast.Constant) if (text := text_of(each))]
