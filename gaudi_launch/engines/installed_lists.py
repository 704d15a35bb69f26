"""The lists of an installed engine, read from its source.

They are classes, methods, and its transformers.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.engines.facts.source import nodes, text_of, texts_of

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


def _tree(path: Path, word: bytes = b"") -> ast.Module | None:
    """Return the syntax tree of a file with these bytes; None if unreadable."""
    try:
        content = path.read_bytes()
        return ast.parse(content.decode("utf-8", "replace")) if word in content else None
    except (OSError, ValueError, SyntaxError, RecursionError) as error:
        _log.debug("a source file of the engine is not read: %s", error)
        return None


def _names_in(path: Path) -> set[str] | None:
    """Return the keys of the registry's dictionaries of (module, class)."""
    found: set[str] = set()
    tree = _tree(path)
    for table in nodes(tree, ast.Dict) if tree is not None else ():
        pairs = zip(table.keys, table.values, strict=True)
        found |= {text_of(key) or "" for key, value in pairs if isinstance(value, ast.Tuple)}
    return (found - {""}) or None


def _methods_in(path: Path) -> tuple[str, ...] | None:
    """Return the platform's ``supported_quantization``; None where it has none."""
    tree = _tree(path)
    for node in nodes(tree, ast.AnnAssign) if tree is not None else ():
        is_ours = ast.unparse(node.target) == "supported_quantization"
        if is_ours and isinstance(node.value, ast.List):
            return tuple(texts_of(node.value))
    return None


def _registered_below(folder: Path) -> set[str]:
    """Return the first arguments of every ``register_model`` in a plugin."""
    found: set[str] = set()
    for path in sorted(folder.rglob("*.py")):
        tree = _tree(path, b"register_model(")
        for node in nodes(tree, ast.Call) if tree is not None else ():
            if isinstance(node.func, ast.Attribute) and node.func.attr == "register_model":
                found |= {text for each in node.args[:1] if (text := text_of(each))}
    return found
