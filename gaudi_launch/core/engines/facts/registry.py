"""Read the classes of vLLM's registry and of a plugin, and a platform's methods."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaudi_launch.core.engines.engine_version import REGISTRY
from gaudi_launch.core.engines.facts.source import (
    FactsError,
    assigned,
    nodes,
    text_of,
    texts_of,
    tree_of,
)

_log = logging.getLogger(__name__)


_POOLED = (
    *("EMBEDDING", "CROSS_ENCODER", "LATE_INTERACTION", "REWARD"),
    *("TOKEN_CLASSIFICATION", "SEQUENCE_CLASSIFICATION"),
)
# what each group of vllm/model_executor/models/registry.py is for
TASKS = {
    "_TEXT_GENERATION_MODELS": "generate",
    "_MULTIMODAL_MODELS": "generate",
    "_TRANSFORMERS_SUPPORTED_MODELS": "generate",
    **{f"_{name}_MODELS": "pool" for name in _POOLED},
    "_SPECULATIVE_DECODING_MODELS": "draft",
    "_TRANSFORMERS_MODELS": "fallback",
    "_TRANSFORMERS_BACKEND_MODELS": "fallback",
    "_FALLBACK_MODEL": "fallback",
}
# the entries of another group with one class, as ast.unparse writes them
_ENTRIES_OF = re.compile(
    r"\{\w+: \(\w+, \w+\) for \(?\w+, \(\w+, \w+\)\)? in (\w+)\.items\(\) if \w+ == '(\w+)'\}"
)

Group = Mapping[str, tuple[str, str]]
"""The module and the class of each architecture."""


def registry_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return the classes of a registry, as ``_VLLM_MODELS`` joins them.

    Module, class and tasks by architecture.
    """
    tree = tree_of(path)
    names = assigned(tree)
    groups: dict[str, Group] = {}
    for name, expression in names.items():
        if name in TASKS and isinstance(expression, ast.Dict):
            groups[name] = _entries(expression, groups)
    joined = names.get("_VLLM_MODELS")
    parts = [ast.unparse(each) for each in joined.values] if isinstance(joined, ast.Dict) else []
    if not parts or not groups.keys() >= {*parts}:
        raise FactsError(f"{path}: _VLLM_MODELS is not made of known groups: {parts}")
    for each in nodes(tree, ast.Subscript):
        if isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "_VLLM_MODELS":
            raise FactsError(f"{path}: _VLLM_MODELS is changed later")
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        for architecture, (module, class_name) in groups[part].items():
            entry = found.setdefault(architecture, {"tasks": []})
            entry["module"], entry["class"] = module, class_name
            if TASKS[part] not in entry["tasks"]:
                entry["tasks"].append(TASKS[part])
    return found


def _entries(expression: ast.expr, groups: Mapping[str, Group]) -> Group:
    """Return the entries that an expression gives a group of the registry."""
    if isinstance(expression, ast.Name):
        return groups[expression.id]
    chosen = _ENTRIES_OF.fullmatch(ast.unparse(expression))
    if chosen:
        return {name: entry for name, entry in groups[chosen[1]].items() if entry[1] == chosen[2]}
    if not isinstance(expression, ast.Dict):
        raise FactsError(f"line {expression.lineno}: another form: {ast.unparse(expression)}")
    found: dict[str, tuple[str, str]] = {}
    for key, value in zip(expression.keys, expression.values, strict=True):
        if key is None:
            found.update(_entries(value, groups))
            continue
        texts = [text_of(part) or "" for part in getattr(value, "elts", ())[:2]]
        architecture = text_of(key)
        if architecture is None or len(texts) != 2 or not all(texts):
            raise FactsError(f"line {value.lineno}: an entry of another form: {ast.unparse(value)}")
        found[architecture] = (texts[0], texts[1])
    return found


def texts_in(path: Path, name: str) -> dict[str, str]:
    """Return a module's dictionary of texts under this name; empty where it has none."""
    expression = assigned(tree_of(path)).get(name)
    if not isinstance(expression, ast.Dict):
        return {}
    pairs = zip(expression.keys, expression.values, strict=True)
    texts = ((text_of(key), text_of(value)) for key, value in pairs)
    return {key: value for key, value in texts if key is not None and value is not None}


def registered(folder: Path) -> dict[str, str]:
    """Return ``module:class`` by architecture that a plugin registers.

    They are read from calls of ``register_model``.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        is_one = b"register_model(" in path.read_bytes()
        for node in nodes(tree_of(path), ast.Call) if is_one else ():
            if not isinstance(node.func, ast.Attribute) or len(node.args) < 2:
                continue
            architecture, target = text_of(node.args[0]), text_of(node.args[1])
            if node.func.attr == "register_model" and architecture is not None:
                found[architecture] = target or ast.unparse(node.args[1])
    return found


def supported_methods(platform: Path) -> tuple[list[str], int]:
    """Return a platform's ``supported_quantization`` and its line; none without."""
    for node in nodes(tree_of(platform), ast.AnnAssign):
        if ast.unparse(node.target) == "supported_quantization" and node.value is not None:
            return texts_of(node.value), node.lineno
    return [], 0


def config_types(vllm: Path) -> list[str]:
    """Return the model types whose configuration class is vLLM's."""
    found = set()
    for path in vllm.glob("transformers_utils/config.py"):
        named = assigned(tree_of(path)).items()
        for value in (each for name, each in named if name.startswith("_CONFIG_REGISTRY")):
            found |= {each.arg for each in nodes(value, ast.keyword)}
            found |= {text_of(key) for each in nodes(value, ast.Dict) for key in each.keys}
    return sorted(filter(None, found))


@dataclass(frozen=True)
class InstalledLists:
    """The lists of an installed engine, which win over the shipped ones.

    ``methods`` is empty where the platform has no list. ``transformers`` is the installed
    release, "" where it is not known. ``evidence`` is the file that was read. ``configs`` are model
    types with a configuration class of vLLM's own.
    """

    classes: Collection[str]
    methods: tuple[str, ...] = ()
    transformers: str = ""
    evidence: str = ""
    configs: Collection[str] = ()


def installed_lists(facts: Mapping[str, str], platform: str) -> InstalledLists | None:
    """Return the lists of an installed vLLM and its plugin.

    Return None where they cannot be read.

    ``facts`` are those of `core.engines.detect`: ``source`` is the folder of vLLM,
    ``plugin_source`` that of the plugin. ``platform`` is the platform's module below either folder.
    """
    try:
        source = Path(facts["source"])
        folder = Path(facts.get("plugin_source") or source)
        found = {*registry_of(source / REGISTRY), *registered(folder / "vllm_gaudi")}
        methods = supported_methods(folder / platform)[0] if (folder / platform).is_file() else []
        configs, path = frozenset(config_types(source / "vllm")), str(source / REGISTRY)
    except (KeyError, FactsError, OSError, SyntaxError) as error:
        _log.debug("a source file of the engine is not read: %s", error)
        return None
    release = facts.get("transformers", "")
    return InstalledLists(frozenset(found), tuple(methods), release, path, configs)
