"""Read what the classes of a registry make: interfaces, and layers with a cache.

Kinds of layers: ``full``, ``sliding`` (a window), ``chunked`` (chunked local attention), ``latent``
(MLA), ``state`` (Mamba, linear attention), ``encoder``, ``cross`` and ``shared``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

from gaudi_launch.core.engines.facts.source import nodes, tree_of

KINDS = ("full", "sliding", "chunked", "latent", "state", "encoder", "cross", "shared")
# the interfaces of vllm/model_executor/models/interfaces.py that decide about the cache and the
# inputs
_INTERFACES = {
    "IsHybrid": "hybrid",
    "IsAttentionFree": "attention_free",
    "HasInnerState": "inner_state",
    "SupportsMultiModal": "multimodal",
    "SupportsPP": "pipeline",
    "SupportsLoRA": "lora",
}
_KEPT = {"hybrid": "state", "inner_state": "state"}
_STATES = (
    *("MambaBase", "MambaMixer", "MambaMixer2", "ConstantSizeCache"),
    *("MambaCacheManager", "MinimaxCacheManager", "MiniMaxCacheManager"),
)
# vLLM's layers by the kind of cache; where an import leads to one of these, reading stops
_LEAVES = {
    "Attention": "full",
    "ChunkedLocalAttention": "chunked",
    "MLAAttention": "latent",
    "MultiHeadLatentAttentionWrapper": "latent",
    "EncoderOnlyAttention": "encoder",
    "MMEncoderAttention": "encoder",
    "CrossAttention": "cross",
    **dict.fromkeys(_STATES, "state"),
}
_WINDOWS = ("per_layer_sliding_window", "sliding_window")
_CHUNKS = ("attention_chunk_size", "use_irope")
_ARGUMENTS = (*_WINDOWS, *_CHUNKS, "use_mla", "attn_type")
_MODELS = "vllm.model_executor.models"
# of vLLM's other packages only these define layers with a cache
_LAYERS = ("mamba", "kda", "gdn", "linear_attn", "short_conv", "minimax", "mla", "attention")

Place = tuple[str, str]
"""The module and the name of a definition."""


class ModelClasses:
    """The model classes of vLLM and a plugin, with all definitions they name."""

    def __init__(self, upstream: Path, checkout: Path) -> None:
        self._roots = {"vllm": upstream, "vllm_gaudi": checkout}
        self._modules: dict[str, _Module] = {}
        # most classes lead to the same layers
        self._bases, self._made = cache(self._bases_of), cache(self._made_by)

    def interfaces(self, module: str, class_name: str) -> list[str]:
        """Return the interfaces of a class, through its bases in the same package."""
        return sorted(_gathered(_start(module, class_name), self._bases))

    def layers(self, module: str, class_name: str) -> list[str]:
        """Return the kinds of layers with a cache that a class makes."""
        found = _gathered(_start(module, class_name), self._made)
        # a class keeps states by itself, or in the model that it loads
        found |= {_KEPT.get(each, "") for each in self.interfaces(module, class_name)}
        return [kind for kind in KINDS if kind in found]

    def _bases_of(self, module: str, name: str) -> tuple[set[str], list[Place]]:
        loaded = self._load(module)
        node = loaded.definitions.get(name)
        bases = [_last(each) for each in node.bases] if isinstance(node, ast.ClassDef) else []
        places = [(module, each) for each in bases]
        if loaded.imports.get(name, ("", ""))[0].startswith(_MODELS):
            places.append(loaded.imports[name])
        return {_INTERFACES[each] for each in bases if each in _INTERFACES}, places

    def _made_by(self, module: str, name: str) -> tuple[set[str], list[Place]]:
        if name in _LEAVES and not module.startswith((_MODELS, "vllm_gaudi")):
            return {_LEAVES[name]}, []
        loaded = self._load(module)
        if name in loaded.imports:
            place = loaded.imports[name]
            return set(), [place] if _is_read(*place) else []
        node = loaded.definitions.get(name)
        if node is None:
            return set(), []
        named, kinds = {name}, set[str]()
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                named.add(each.id)
            elif isinstance(each, ast.Call):
                kinds |= _kinds_of(each)
        return kinds, [(module, each) for each in sorted(named - {name})]

    def _load(self, module: str) -> _Module:
        if module not in self._modules:
            self._modules[module] = _Module(module, self._roots.get(module.partition(".")[0]))
        return self._modules[module]


class _Module:
    """The definitions and imports of one file; none where there is no such file."""

    def __init__(self, name: str, root: Path | None) -> None:
        self.definitions: dict[str, ast.AST] = {}
        self.imports: dict[str, Place] = {}
        if root is None:
            return
        path, package = root / (name.replace(".", "/") + ".py"), name.rpartition(".")[0]
        if not path.is_file():
            path, package = root / name.replace(".", "/") / "__init__.py", name
        if not path.is_file():
            return
        tree = tree_of(path)
        for each in nodes(tree, ast.ImportFrom):
            source = each.module or ""
            if each.level:
                above = package.split(".")[: len(package.split(".")) - each.level + 1]
                source = ".".join([*above, source] if source else above)
            for alias in each.names:
                self.imports[alias.asname or alias.name] = (source, alias.name)
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                self.definitions[node.name] = node
            # a table of the layers' classes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.definitions[node.targets[0].id] = node


def _start(module: str, class_name: str) -> Place:
    return (module if module.startswith("vllm") else f"{_MODELS}.{module}"), class_name


def _gathered(start: Place, read: Callable[[str, str], tuple[set[str], list[Place]]]) -> set[str]:
    """Return what is read at a place and at each that it leads to."""
    found: set[str] = set()
    seen: set[Place] = set()
    waiting = [start]
    while waiting:
        place = waiting.pop()
        if place not in seen:
            seen.add(place)
            kinds, places = read(*place)
            found |= kinds
            waiting += places
    return found


def _last(base: ast.expr) -> str:
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]


def _is_read(source: str, name: str) -> bool:
    """Return True for an import that can lead to a layer with a cache."""
    if name in _LEAVES and source.startswith("vllm"):
        return True
    if source.startswith((_MODELS, "vllm_gaudi.")):
        return True
    below = source.removeprefix("vllm.model_executor.layers.")
    return below != source and any(part in below for part in _LAYERS)


def _kinds_of(call: ast.Call) -> set[str]:
    """Return the kinds that a call's arguments state: windows, MLA, encoders."""
    found: set[str] = set()
    given = {each.arg: ast.unparse(each.value) for each in call.keywords if each.arg in _ARGUMENTS}
    if any(given.get(name, "None") != "None" for name in _WINDOWS):
        found.add("sliding")
    if any(given.get(name, "None") not in ("None", "False") for name in _CHUNKS):
        found.add("chunked")
    if given.get("use_mla") == "True":
        found.add("latent")
    _, dot, kind = given.get("attn_type", "").rpartition(".")
    if dot and kind in _ENCODERS:
        found.add(_ENCODERS[kind])
    return found


_ENCODERS = {"ENCODER_DECODER": "cross", "ENCODER": "encoder", "ENCODER_ONLY": "encoder"}
