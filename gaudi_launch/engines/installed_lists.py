"""The lists of an installed engine, read from its source.

They are classes, methods, and its transformers.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_Node = TypeVar("_Node", bound=ast.AST)
_log = logging.getLogger(__name__)

REGISTRY = "vllm/model_executor/models/registry.py"


@dataclass(frozen=True)
class InstalledLists:
    """The lists of an installed engine, which win over the shipped ones.

    ``methods`` is None where the platform's list cannot be read. ``transformers`` is the installed
    release, "" where it is not known. ``evidence`` is the file that was read.
    """

    classes: frozenset[str]
    methods: tuple[str, ...] | None = None
    transformers: str = ""
    evidence: str = ""


def installed_lists(facts: Mapping[str, str], platform: str) -> InstalledLists | None:
    """Return the lists of an installed vLLM and its plugin.

    Return None where they cannot be read.

    ``facts`` are those of `engines.detect`: ``source`` is the folder of vLLM, ``plugin_source``
    that of the plugin. ``platform`` is the platform's module below either folder.
    """
    source, plugin = facts.get("source"), facts.get("plugin_source")
    if not source:
        return None
    path = Path(source) / REGISTRY
    found = _names_in(path)
    if found is None:
        return None
    if plugin:
        found |= _registered_below(Path(plugin) / "vllm_gaudi")
    return InstalledLists(
        frozenset(found),
        _methods_in(Path(plugin or source) / platform),
        facts.get("transformers", ""),
        str(path),
    )


def _tree(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, SyntaxError, RecursionError) as error:
        _log.debug("a source file of the engine is not read: %s", error)
        return None


def _names_in(path: Path) -> set[str] | None:
    """Return the keys of the registry's dictionaries of (module, class)."""
    tree = _tree(path)
    if tree is None:
        return None
    found: set[str] = set()
    for table in _nodes(tree, ast.Dict):
        pairs = zip(table.keys, table.values, strict=True)
        found |= {_word(key) for key, value in pairs if isinstance(value, ast.Tuple)}
    return (found - {""}) or None


def _methods_in(path: Path) -> tuple[str, ...] | None:
    """Return the platform's ``supported_quantization``; None where it has none."""
    for node in _nodes(_tree(path), ast.AnnAssign):
        is_ours = isinstance(node.target, ast.Name) and node.target.id == "supported_quantization"
        if is_ours and isinstance(node.value, ast.List):
            return tuple(filter(None, map(_word, node.value.elts)))
    return None


def _nodes(tree: ast.Module | None, kind: type[_Node]) -> list[_Node]:
    """Return the nodes of a kind; none of a file that is not read."""
    if tree is None:
        return []
    return [node for node in ast.walk(tree) if isinstance(node, kind)]


def _registered_below(folder: Path) -> set[str]:
    """Return the first arguments of every ``register_model`` in a plugin."""
    found: set[str] = set()
    for path in sorted(folder.rglob("*.py")):
        if _mentions(path, b"register_model("):
            found |= set(_registered_in(_tree(path)))
    return found


def _mentions(path: Path, word: bytes) -> bool:
    try:
        return word in path.read_bytes()
    except OSError as error:
        _log.debug("a source file of the engine is not read: %s", error)
        return False


def _registered_in(tree: ast.Module | None) -> Iterator[str]:
    for node in _nodes(tree, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "register_model":
            yield from filter(None, map(_word, node.args[:1]))


def _word(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ""
