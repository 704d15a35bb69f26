#!/usr/bin/env python3
"""Write what one engine version runs, read from a checkout of its source.

    engine_facts.py read vllm-gaudi 0.26.0 --checkout DIR --commit HASH --date YYYY-MM-DD \
        --upstream DIR --upstream-version 0.26.0
    engine_facts.py index

``read`` writes ``profiles/engines/support/ENGINE-VERSION.json``, ``index`` joins all of them into
``index.json``. Everything is read from the syntax tree, so that the same commit gives the same file
on any machine. The registry, the platform's quantisation methods, the names of ``vllm/envs.py`` and
the allocation of the KV cache are read once more by `engine_probe`, which executes the engine's
code in a separate interpreter; both readings have to be equal.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import engine_cache

SUPPORT = Path(__file__).resolve().parent.parent / "profiles" / "engines" / "support"
PROBE = Path(__file__).resolve().parent / "engine_probe.py"

# what each group of vllm/model_executor/models/registry.py is for
TASKS = {
    "_TEXT_GENERATION_MODELS": "generate",
    "_MULTIMODAL_MODELS": "generate",
    "_EMBEDDING_MODELS": "pool",
    "_CROSS_ENCODER_MODELS": "pool",
    "_LATE_INTERACTION_MODELS": "pool",
    "_REWARD_MODELS": "pool",
    "_TOKEN_CLASSIFICATION_MODELS": "pool",
    "_SEQUENCE_CLASSIFICATION_MODELS": "pool",
    "_SPECULATIVE_DECODING_MODELS": "draft",
    "_TRANSFORMERS_MODELS": "fallback",
    "_TRANSFORMERS_BACKEND_MODELS": "fallback",
    "_FALLBACK_MODEL": "fallback",
    "_TRANSFORMERS_SUPPORTED_MODELS": "generate",
}
REGISTRY = "vllm/model_executor/models/registry.py"
# the interfaces of vllm/model_executor/models/interfaces.py that decide about the cache and the
# inputs
INTERFACES = {
    "IsHybrid": "hybrid",
    "IsAttentionFree": "attention_free",
    "HasInnerState": "inner_state",
    "SupportsMultiModal": "multimodal",
    "SupportsPP": "pipeline",
    "SupportsLoRA": "lora",
}
_NAME = re.compile(r"^[A-Z][A-Z0-9_]{2,79}$")
_LINK = re.compile(r"\[([^\]]+)\]\(https?://(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)\)")


@dataclass
class Facts:
    """The facts by section, and the method by which each section was read."""

    sections: dict[str, Any] = field(default_factory=dict)
    read_by: dict[str, list[str]] = field(default_factory=dict)


def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of one file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the module's assigned names with their expressions."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.value is not None
        ):
            found[node.target.id] = node.value
    return found


def text_of(node: ast.expr | None) -> str | None:
    """Return a string constant; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


# The registry


def registry_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return the classes of a registry, as ``_VLLM_MODELS`` joins them.

    Module, class and tasks by architecture.
    """
    names = assigned(tree_of(path))
    groups: dict[str, dict[str, tuple[str, str]]] = {}
    for name, expression in names.items():
        if name in TASKS and isinstance(expression, ast.Dict):
            groups[name] = dict(_group(expression, groups))
    joined = names.get("_VLLM_MODELS")
    if not isinstance(joined, ast.Dict):
        raise SystemExit(f"{path}: no _VLLM_MODELS")
    found: dict[str, dict[str, Any]] = {}
    for part in joined.values:
        if not isinstance(part, ast.Name) or part.id not in groups:
            raise SystemExit(
                f"{path}: _VLLM_MODELS has a part that is not a known group: {ast.unparse(part)}"
            )
        for architecture, (module, class_name) in groups[part.id].items():
            entry = found.setdefault(architecture, {"tasks": []})
            entry["module"], entry["class"] = module, class_name
            if TASKS[part.id] not in entry["tasks"]:
                entry["tasks"].append(TASKS[part.id])
    return found


def _group(
    expression: ast.Dict, groups: Mapping[str, Mapping[str, tuple[str, str]]]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the entries of one group.

    A comprehension takes those of another with one class.
    """
    for key, value in zip(expression.keys, expression.values, strict=True):
        if key is None:
            yield from _taken(value, groups)
            continue
        architecture = text_of(key)
        if architecture is None or not isinstance(value, ast.Tuple):
            raise SystemExit(f"line {value.lineno}: an entry of another form: {ast.unparse(value)}")
        module, class_name = (text_of(part) for part in value.elts[:2])
        if module is None or class_name is None:
            raise SystemExit(f"line {value.lineno}: an entry without texts")
        yield architecture, (module, class_name)


def _taken(
    value: ast.expr, groups: Mapping[str, Mapping[str, tuple[str, str]]]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the entries of a comprehension over a group with one class.

    Its form is ``{k: (mod, arch) for k, (mod, arch) in GROUP.items() if arch == "CLASS"}``.
    """
    if isinstance(value, ast.Name):
        yield from groups[value.id].items()
        return
    if not isinstance(value, ast.DictComp):
        raise SystemExit(f"line {value.lineno}: a part of another form: {ast.unparse(value)}")
    source = value.generators[0]
    called = source.iter
    conditions = source.ifs
    known = (
        isinstance(called, ast.Call)
        and isinstance(called.func, ast.Attribute)
        and isinstance(called.func.value, ast.Name)
        and len(conditions) == 1
        and isinstance(conditions[0], ast.Compare)
        and isinstance(conditions[0].ops[0], ast.Eq)
    )
    if not known:
        raise SystemExit(
            f"line {value.lineno}: a comprehension of another form: {ast.unparse(value)}"
        )
    group = called.func.value.id  # type: ignore[attr-defined]
    wanted = text_of(conditions[0].comparators[0])  # type: ignore[attr-defined]
    for architecture, (module, class_name) in groups[group].items():
        if class_name == wanted:
            yield architecture, (module, class_name)


def texts_in(path: Path, name: str) -> dict[str, str]:
    """Return a module's dictionary of texts under this name; empty where it has none."""
    expression = assigned(tree_of(path)).get(name)
    if not isinstance(expression, ast.Dict):
        return {}
    found: dict[str, str] = {}
    for key, value in zip(expression.keys, expression.values, strict=True):
        architecture, text = text_of(key), text_of(value)
        if architecture is not None and text is not None:
            found[architecture] = text
    return found


def registered(folder: Path) -> dict[str, str]:
    """Return ``module:class`` by architecture that a plugin registers.

    They are read from calls of ``register_model``.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr != "register_model" or len(node.args) < 2:
                continue
            architecture, target = text_of(node.args[0]), text_of(node.args[1])
            if architecture is not None:
                found[architecture] = target or ast.unparse(node.args[1])
    return found


class Classes:
    """The classes of vllm/model_executor/models by module, with their bases' names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, dict[str, list[str]]] = {}
        self._imports: dict[str, dict[str, tuple[str, str]]] = {}

    def interfaces(self, module: str, class_name: str) -> frozenset[str]:
        """Return the interfaces of a class, through its bases in the same package."""
        found: set[str] = set()
        seen: set[tuple[str, str]] = set()
        waiting = [(module, class_name)]
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            name, wanted = place
            self._load(name)
            for base in self._modules[name].get(wanted, ()):
                if base in INTERFACES:
                    found.add(INTERFACES[base])
                waiting.append((name, base))
            if wanted in self._imports[name]:
                waiting.append(self._imports[name][wanted])
        return frozenset(found)

    def _load(self, module: str) -> None:
        if module in self._modules:
            return
        self._modules[module], self._imports[module] = {}, {}
        path = self._folder / (module.replace(".", "/") + ".py")
        if not path.is_file():
            path = self._folder / module.replace(".", "/") / "__init__.py"
        if not path.is_file():
            return
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                self._modules[module][node.name] = [_last(base) for base in node.bases]
            if isinstance(node, ast.ImportFrom):
                self._import(module, node)

    def _import(self, module: str, node: ast.ImportFrom) -> None:
        source = node.module or ""
        if node.level == 0:
            prefix = "vllm.model_executor.models."
            if not source.startswith(prefix):
                return
            source = source.removeprefix(prefix)
        for alias in node.names:
            self._imports[module][alias.asname or alias.name] = (source, alias.name)


def _last(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        base = base.value
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


# Quantisation


def supported_quantization(path: Path) -> tuple[list[str], int]:
    """Return the platform's ``supported_quantization`` and its line."""
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.List):
            continue
        if isinstance(node.target, ast.Name) and node.target.id == "supported_quantization":
            return [text for each in node.value.elts if (text := text_of(each))], node.lineno
    raise SystemExit(f"{path}: no supported_quantization")


def expanded_at_load(folder: Path) -> list[dict[str, str]]:
    """Return the methods that are dequantised when weights are loaded.

    The form is a patched ``_normalize_quantization_config`` that returns None for one method of one
    model type, and the variable that prevents that.
    """
    found = []
    for path in sorted(folder.rglob("*.py")):
        tree = tree_of(path)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.FunctionDef)
                and node.name == "_patched_normalize_quantization_config"
            ):
                compared = [
                    text
                    for each in ast.walk(node)
                    if isinstance(each, ast.Compare)
                    for part in each.comparators
                    if (text := text_of(part))
                ]
                if len(compared) != 2:
                    raise SystemExit(f"{path}:{node.lineno}: compares {compared}")
                model_type, method = compared
                entry = {"method": method, "model_type": model_type, "to": "bfloat16"}
                entry["unless"] = _kept_by(tree, node)
                entry["source"] = f"{path.relative_to(folder.parent).as_posix()}:{node.lineno}"
                found.append(entry)
    return found


def renamed_methods(vllm: Path) -> dict[str, dict[str, str]]:
    """Return the methods that vLLM loads as another one, with the place.

    The form is an ``override_quantization_method`` that compares ``quant_method`` with one text and
    returns the class's name.
    """
    found: dict[str, dict[str, str]] = {}
    for path in sorted((vllm / "model_executor/layers/quantization").rglob("*.py")):
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ClassDef):
                continue
            functions = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
            override, name = (
                functions.get("override_quantization_method"),
                functions.get("get_name"),
            )
            if override is None or name is None:
                continue
            compared = [each for each in ast.walk(override) if isinstance(each, ast.Compare)]
            method = text_of(compared[0].comparators[0]) if len(compared) == 1 else None
            code = ast.unparse(override)
            # the overrides of another platform do not count
            is_whole = "quant_method" in code and "current_platform" not in code
            returned = [
                text_of(each.value) for each in ast.walk(name) if isinstance(each, ast.Return)
            ]
            if method and is_whole and "return cls.get_name()" in code and returned[0]:
                place = f"vllm/{path.relative_to(vllm).as_posix()}:{override.lineno}"
                found[method] = {"to": returned[0], "source": place}
    return found


def _kept_by(tree: ast.Module, function: ast.FunctionDef) -> str:
    """Return ``NAME=VALUE`` of the module's switch that the function reads first.

    Return "" without one.
    """
    used = {each.id for each in ast.walk(function) if isinstance(each, ast.Name)}
    for name, expression in assigned(tree).items():
        if name not in used or not isinstance(expression, ast.Compare):
            continue
        value = text_of(expression.comparators[0])
        for variable, _, _ in environment_reads(expression):
            return f"{variable}={value}"
    return ""


# Environment variables


def environment_reads(tree: ast.AST) -> Iterator[tuple[str, str | None, int]]:
    """Yield name, default and line of every read of an environment variable.

    The name must be a constant.
    """
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Load)
            and _is_environ(node.value)
        ):
            name = text_of(node.slice)
            if name is not None and _NAME.match(name):
                yield name, None, node.lineno
        if isinstance(node, ast.Call):
            found = _call_read(node)
            if found is not None and _NAME.match(found[0]):
                yield found[0], found[1], node.lineno


def _is_environ(node: ast.expr) -> bool:
    return ast.unparse(node) in ("os.environ", "environ")


def _call_read(node: ast.Call) -> tuple[str, str | None] | None:
    """Return name and default of a call that reads a variable.

    It is ``os.getenv``, ``os.environ.get``, ``env_with_choices``, or the extension's ``Env`` and
    ``Value``.
    """
    called = ast.unparse(node.func)
    first = text_of(node.args[0]) if node.args else None
    default = ast.unparse(node.args[1]) if len(node.args) > 1 else None
    if called in (
        "os.getenv",
        "getenv",
        "os.environ.get",
        "environ.get",
        "env_with_choices",
        "env_list_with_choices",
    ):
        return (first, default) if first is not None else None
    if called == "Env" and first is not None:
        return first, None
    if called == "Value" and first is not None:
        named = next((text_of(k.value) for k in node.keywords if k.arg == "env_var"), None)
        return named or f"VLLM_{first.upper()}", default
    return None


def environment_of(roots: Iterable[tuple[Path, Iterable[Path]]]) -> dict[str, dict[str, Any]]:
    """Return defaults and readers by variable, for files below their roots."""
    found: dict[str, dict[str, Any]] = {}
    for root, paths in roots:
        for path in sorted(paths):
            place = path.relative_to(root).as_posix()
            for name, default, line in environment_reads(tree_of(path)):
                entry = found.setdefault(name, {"default": None, "read_by": []})
                if entry["default"] is None:
                    entry["default"] = default
                entry["read_by"].append(f"{place}:{line}")
    for entry in found.values():
        entry["read_by"] = sorted(set(entry["read_by"]))[:5]
    return found


# Options


def options_of(vllm: Path) -> dict[str, dict[str, Any]]:
    """Return default and place of every option of the API server."""
    defaults = _defaults(vllm)
    found: dict[str, dict[str, Any]] = {}
    for place in ("engine/arg_utils.py", "entrypoints/openai/cli_args.py"):
        path = vllm / place
        if not path.is_file():
            continue
        tree = tree_of(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument"):
                _argument(node, f"vllm/{place}", defaults, found)
            if isinstance(node, ast.ClassDef) and "FrontendArgs" in node.name:
                _frontend(node, f"vllm/{place}", found)
    return found


def _argument(
    node: ast.Call, place: str, defaults: Mapping[str, str], found: dict[str, dict[str, Any]]
) -> None:
    names = [text for each in node.args if (text := text_of(each)) and text.startswith("--")]
    if not names:
        return
    stated = next((each.value for each in node.keywords if each.arg == "default"), None)
    field_name = names[0].removeprefix("--").replace("-", "_")
    default = defaults.get(field_name)
    if stated is not None:
        written = ast.unparse(stated)
        default = defaults.get(written.removeprefix("EngineArgs."), written)
    found[names[0]] = {"default": default, "place": f"{place}:{node.lineno}"}


def _frontend(node: ast.ClassDef, place: str, found: dict[str, dict[str, Any]]) -> None:
    """Add the fields of the server's own arguments, each of which becomes an option."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            name = "--" + each.target.id.replace("_", "-")
            default = ast.unparse(each.value) if each.value is not None else None
            found.setdefault(name, {"default": default, "place": f"{place}:{each.lineno}"})


def _defaults(vllm: Path) -> dict[str, str]:
    """Return the default of every field of EngineArgs.

    It is looked up in the configuration classes that it names.
    """
    configs: dict[str, dict[str, str]] = {}
    paths = [vllm / "config.py", *sorted((vllm / "config").glob("*.py"))]
    for path in paths:
        if path.is_file():
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef):
                    configs[node.name] = _fields(node)
    arguments = next(
        (
            n
            for n in tree_of(vllm / "engine/arg_utils.py").body
            if isinstance(n, ast.ClassDef) and n.name == "EngineArgs"
        ),
        None,
    )
    if arguments is None:
        return {}
    found = {}
    for name, written in _fields(arguments).items():
        match = re.match(r"^(?:get_field\()?(\w+)[.,] ?'?(\w+)'?\)?$", written)
        if match and match[1] in configs:
            written = configs[match[1]].get(match[2], written)
        found[name] = written
    return found


def _fields(node: ast.ClassDef) -> dict[str, str]:
    return {
        each.target.id: _default(each.value)
        for each in node.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and each.value is not None
    }


def _default(written: ast.expr) -> str:
    """Return a field's default as text.

    That of ``Field(default=...)`` without its limits.
    """
    if isinstance(written, ast.Call) and ast.unparse(written.func) in ("Field", "field"):
        for keyword in written.keywords:
            if keyword.arg in ("default", "default_factory"):
                return ast.unparse(keyword.value)
    return ast.unparse(written)


# Transformers, MLA, validated models


def transformers_ranges(paths: Iterable[Path]) -> dict[str, str]:
    """Return the range of transformers that each file of requirements states."""
    found = {}
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            match = re.match(r"^transformers\s*([<>=!~][^#;]*)", line.strip())
            if match:
                found[path.name] = re.sub(r"\s+", "", match[1])
    return found


def mla_types(vllm: Path) -> tuple[list[str], str]:
    """Return the model types with a compressed cache, and the place.

    They are those of ``is_deepseek_mla``.
    """
    places = [vllm / "transformers_utils/model_arch_config_convertor.py", vllm / "config.py"]
    places += sorted((vllm / "config").glob("*.py"))
    for path in places:
        if not path.is_file():
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef) and node.name == "is_deepseek_mla":
                types = sorted(_compared(node))
                if types:
                    return types, f"vllm/{path.relative_to(vllm).as_posix()}:{node.lineno}"
    return [], ""


def _compared(function: ast.FunctionDef) -> set[str]:
    """Return the texts that ``model_type`` is compared with."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and "model_type" in ast.unparse(node.left):
            for part in node.comparators:
                found |= {
                    text
                    for each in ast.walk(part)
                    if isinstance(each, ast.expr) and (text := text_of(each))
                }
    return found - {"eagle", "medusa", "mlp_speculator"}


def sparse_as_dense(platform: Path) -> str:
    """Return where the platform runs sparse attention as dense MLA.

    Return "" where it refuses it or does not know it.
    """
    source = platform.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and "as dense MLA" in node.value:  # type: ignore[attr-defined]
            return f"{platform.name}:{node.lineno}"  # type: ignore[attr-defined]
    return ""


def validated(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the validated models of a table or list.

    Each has hub ID, cards, data types and accelerators.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            link = _LINK.search(line)
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            place = f"{path.name}:{number}"
            if link and line.startswith("|") and len(cells) >= 4:
                found[link[2]] = _validated(cells[1], cells[2], cells[3], place)
            elif link and line.startswith("- ") and "HPU" in line:
                found[link[2]] = _validated(_cards_in(line), line, "Gaudi 2", place)
    return [{"model": model, **found[model]} for model in sorted(found, key=str.lower)]


def _cards_in(line: str) -> str:
    many = re.findall(r"(\d+)x", line)
    return " ".join((["1"] if "single HPU" in line else []) + many)


def _validated(cards: str, types: str, accelerators: str, place: str) -> dict[str, Any]:
    numbers = sorted(
        {int(each) for each in re.findall(r"\b(\d+)\b", re.sub(r"\(.*?\)", "", cards))}
    )
    names = sorted(
        {name.upper() for name in re.findall(r"\b(bf16|fp16|fp8|int4)\b", types, re.IGNORECASE)}
    )
    cards_of = sorted({f"gaudi{number}" for number in re.findall(r"Gaudi\s*(\d)", accelerators)})
    return {"cards": numbers, "dtypes": names, "accelerators": cards_of, "source": place}


# One version


def read(options: argparse.Namespace) -> dict[str, Any]:
    """Return the document of one engine version."""
    checkout: Path = options.checkout
    plugin = checkout / "vllm_gaudi"
    is_plugin = plugin.is_dir()
    upstream: Path | None = options.upstream if is_plugin else checkout
    facts = Facts()
    if upstream is not None:
        _from_vllm(facts, upstream / "vllm", upstream, checkout, is_plugin=is_plugin)
    if is_plugin:
        _from_plugin(facts, plugin)
        platform = plugin / "platform.py"
    else:
        platform = checkout / "vllm/platforms/hpu.py"
    methods, line = supported_quantization(platform)
    facts.sections["quantization"] = {
        "supported": methods,
        "expanded_at_load": expanded_at_load(plugin / "models")
        if is_plugin and (plugin / "models").is_dir()
        else [],
        "renamed": renamed_methods(upstream / "vllm") if upstream is not None else {},
        "source": f"{platform.relative_to(checkout).as_posix()}:{line}",
    }
    facts.read_by["quantization"] = ["ast"]
    facts.sections["sparse_as_dense"] = sparse_as_dense(platform)
    facts.sections["transformers"] = transformers_ranges(_requirements(checkout, upstream))
    facts.sections["environment"] = environment_of(_readers(checkout, upstream, options.extension))
    facts.sections["validated"] = validated(_lists(checkout))
    facts.sections["cache"] = engine_cache.allocation_of(checkout)
    if upstream is not None:
        _add_layers(facts, upstream, checkout)
    for name in ("transformers", "environment", "validated", "sparse_as_dense", "cache"):
        facts.read_by.setdefault(name, ["ast"] if name != "validated" else ["text"])
    probe(facts, upstream, checkout)
    return _document(options, facts)


def _from_vllm(
    facts: Facts, vllm: Path, upstream: Path, checkout: Path, *, is_plugin: bool
) -> None:
    models = registry_of(upstream / REGISTRY)
    classes = Classes(vllm / "model_executor/models")
    for entry in models.values():
        entry["interfaces"] = sorted(classes.interfaces(entry["module"], entry["class"]))
    facts.sections["models"] = models
    facts.sections["removed"] = texts_in(upstream / REGISTRY, "_PREVIOUSLY_SUPPORTED_MODELS")
    facts.sections["options"] = options_of(vllm)
    types, place = mla_types(vllm)
    facts.sections["mla"] = {"model_types": types, "source": place}
    for name in ("models", "removed", "options", "mla"):
        facts.read_by[name] = ["ast"]


def _from_plugin(facts: Facts, plugin: Path) -> None:
    """Put the plugin's classes over those of upstream.

    The interfaces remain those of upstream's class.
    """
    models = facts.sections.setdefault("models", {})
    for architecture, target in registered(plugin).items():
        module, _, class_name = target.partition(":")
        entry = models.setdefault(architecture, {"tasks": ["generate"], "interfaces": []})
        entry["module"], entry["class"] = module, class_name
    facts.read_by.setdefault("models", ["ast"])


def _add_layers(facts: Facts, upstream: Path, checkout: Path) -> None:
    """Add the kinds of cached layers that each class makes."""
    layers = engine_cache.CacheLayers(upstream, checkout)
    for entry in facts.sections["models"].values():
        entry["layers"] = layers.of(entry["module"], entry["class"])
    facts.read_by["layers"] = ["ast"]


def _requirements(checkout: Path, upstream: Path | None) -> list[Path]:
    places = [
        checkout / "requirements.txt",
        checkout / "requirements-common.txt",
        checkout / "requirements-hpu.txt",
    ]
    places += [checkout / "requirements/common.txt", checkout / "requirements/hpu.txt"]
    if upstream is not None and upstream != checkout:
        places += [upstream / "requirements/common.txt"]
    return [place for place in places if place.is_file()]


def _readers(
    checkout: Path, upstream: Path | None, extension: Path | None
) -> list[tuple[Path, list[Path]]]:
    """Return the files whose reads of variables count.

    They are envs.py and the files made for this hardware.
    """
    plugin = checkout / "vllm_gaudi"
    found: list[tuple[Path, list[Path]]] = []
    if plugin.is_dir():
        found.append((checkout, list(plugin.rglob("*.py"))))
    else:
        mine = [
            path
            for path in (checkout / "vllm").rglob("*.py")
            if "hpu" in path.relative_to(checkout).as_posix()
        ]
        found.append((checkout, mine))
    if upstream is not None:
        found.append((upstream, [upstream / "vllm/envs.py"]))
    if extension is not None:
        found.append((extension, list((extension / "vllm_hpu_extension").rglob("*.py"))))
    return found


def _lists(checkout: Path) -> list[Path]:
    places = [
        *sorted((checkout / "docs").rglob("validated_models.md")),
        checkout / "README_GAUDI.md",
    ]
    return [place for place in places if place.is_file()]


def probe(facts: Facts, upstream: Path | None, checkout: Path) -> None:
    """Execute the engine's own modules and compare.

    SystemExit where the two readings differ.

    A section that cannot be executed here keeps "ast" alone in ``read_by``.
    """
    argv = [sys.executable, "-I", str(PROBE), str(upstream or ""), str(checkout)]
    answer = subprocess.run(
        argv, capture_output=True, text=True, timeout=300, check=False, env={"PATH": "/usr/bin"}
    )
    if answer.returncode:
        raise SystemExit(f"engine_probe: {answer.stderr.strip()[-2000:]}")
    found = json.loads(answer.stdout)
    for problem in found["problems"]:
        print(f"not executed: {problem}", file=sys.stderr)
    if found["models"] is not None:
        ours = {
            name: [entry["module"], entry["class"]]
            for name, entry in facts.sections["models"].items()
        }
        _equal("models", ours, found["models"])
        facts.read_by["models"] = ["ast", "import"]
    if found["quantization"] is not None:
        _equal("quantization", facts.sections["quantization"]["supported"], found["quantization"])
        facts.read_by["quantization"] = ["ast", "import"]
    if found["cache"] is not None:
        _equal("cache", engine_cache.without_places(facts.sections["cache"]), found["cache"])
        facts.read_by["cache"] = ["ast", "import"]
    if found["environment"] is not None:
        _add_environment(facts, found["environment"])


def _add_environment(facts: Facts, executed: Mapping[str, Any]) -> None:
    """Add the values that envs.py computes in an empty environment."""
    variables = facts.sections["environment"]
    missing = sorted(name for name in executed if name not in variables)
    for name in missing:
        variables[name] = {"default": None, "read_by": ["vllm/envs.py"]}
    for name, value in executed.items():
        variables[name]["value"] = value
    facts.read_by["environment"] = ["ast", "import"]


def _equal(what: str, ours: Any, theirs: Any) -> None:
    if ours == theirs:
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        different = sorted(k for k in {*ours, *theirs} if ours.get(k) != theirs.get(k))
        raise SystemExit(
            f"{what}: read and executed differ: "
            f"{[(k, ours.get(k), theirs.get(k)) for k in different]}"
        )
    raise SystemExit(f"{what}: read {ours}, executed {theirs}")


def _document(options: argparse.Namespace, facts: Facts) -> dict[str, Any]:
    document: dict[str, Any] = {
        "schema": 1,
        "engine": options.engine,
        "version": options.version,
        "repository": options.repository,
        "commit": options.commit,
        "date": options.date,
    }
    if options.upstream_version:
        document["upstream"] = {"package": "vllm", "version": options.upstream_version}
    document["read_by"] = dict(sorted(facts.read_by.items()))
    document.update(facts.sections)
    return document


def render(document: Mapping[str, Any]) -> str:
    """Return the document as JSON: one line for each entry of a section."""
    lines = []
    for name, value in document.items():
        if isinstance(value, dict) and value and name not in ("upstream", "read_by"):
            rows = [
                f"    {json.dumps(key)}: {json.dumps(value[key], ensure_ascii=False)}"
                for key in sorted(value)
            ]
            lines.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n  }")
        elif isinstance(value, list) and value:
            rows = [f"    {json.dumps(each, ensure_ascii=False)}" for each in value]
            lines.append(f"  {json.dumps(name)}: [\n" + ",\n".join(rows) + "\n  ]")
        else:
            lines.append(f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def index(folder: Path = SUPPORT) -> dict[str, Any]:
    """Return what a question about a model needs of every version.

    Each list of classes is stored once. ``models`` maps an architecture to the numbers of the
    versions that have it; ``kinds`` has its tasks and interfaces at the newest of them, ``layers``
    the kinds of cached layers that it makes, with the versions of each answer.
    """
    documents = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    ]
    documents = [document for document in documents if "engine" in document]
    documents.sort(
        key=lambda document: (document["engine"], document["date"], _numbers(document["version"]))
    )
    versions: list[dict[str, Any]] = []
    models: dict[str, list[int]] = {}
    kinds: dict[str, list[str]] = {}
    layers: dict[str, dict[str, list[int]]] = {}
    for number, document in enumerate(documents):
        taken = ("engine", "version", "repository", "commit", "date", "upstream")
        row = {name: document[name] for name in taken if name in document}
        row["complete"] = "removed" in document
        row["read_by"] = document["read_by"].get("models", [])
        row["quantization"] = document["quantization"]
        row["transformers"] = document["transformers"]
        row["mla"] = document.get("mla", {}).get("model_types", [])
        row["sparse_as_dense"] = document["sparse_as_dense"]
        row["cache"] = document["cache"]
        row["cache_read_by"] = document["read_by"]["cache"]
        row["compact_gdn"] = _first_reader(document, "VLLM_COMPACT_GDN")
        row["removed"] = document.get("removed", {})
        row["validated"] = document["validated"]
        versions.append(row)
        for architecture, entry in document["models"].items():
            models.setdefault(architecture, []).append(number)
            kinds[architecture] = [*entry["tasks"], *entry["interfaces"]]
            if entry.get("layers"):
                made = layers.setdefault(architecture, {})
                made.setdefault(" ".join(entry["layers"]), []).append(number)
    return {"schema": 1, "versions": versions, "models": models, "kinds": kinds, "layers": layers}


def _first_reader(document: Mapping[str, Any], variable: str) -> str:
    """Return where an engine reads a variable first; "" where it does not."""
    entry = document["environment"].get(variable)
    return entry["read_by"][0] if entry is not None else ""


def mla_types_of(folder: Path = SUPPORT) -> dict[str, Any]:
    """Return the model types with a compressed cache.

    Each has the oldest version that lists it, and the place.
    """
    documents = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    ]
    documents = [document for document in documents if document.get("mla", {}).get("model_types")]
    documents.sort(key=lambda document: (document["date"], _numbers(document["version"])))
    found: dict[str, str] = {}
    for document in documents:
        place = f"{document['engine']}@{document['version']}: {document['mla']['source']}"
        for kind in document["mla"]["model_types"]:
            found.setdefault(kind, place)
    return {"schema": 1, "model_types": found}


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("read")
    one.add_argument("engine")
    one.add_argument("version")
    one.add_argument("--checkout", type=Path, required=True)
    one.add_argument("--repository", required=True)
    one.add_argument("--commit", required=True)
    one.add_argument("--date", required=True)
    one.add_argument("--upstream", type=Path)
    one.add_argument("--upstream-version", default="")
    one.add_argument("--extension", type=Path)
    one.add_argument("--out", type=Path, default=SUPPORT)
    commands.add_parser("index")
    options = parser.parse_args()
    if options.command == "index":
        (SUPPORT / "index.json").write_text(render(index()), encoding="utf-8")
        (SUPPORT / "mla.json").write_text(render(mla_types_of()), encoding="utf-8")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.engine}-{options.version}.json"
    path.write_text(render(read(options)), encoding="utf-8")


if __name__ == "__main__":
    main()
