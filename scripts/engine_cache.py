"""Read from an engine's source how it allocates its KV cache.

Two questions: which kinds of layers a model class makes (`CacheLayers`), and what this version
allocates for each kind (`allocation_of`). Both are read from the syntax tree; `engine_probe`
executes the second one with stand-in layers.

Kinds: ``full``, ``sliding`` (a window), ``chunked`` (chunked local attention), ``latent`` (MLA),
``state`` (Mamba, linear attention), ``encoder`` and ``cross``. Allocations: ``full`` (keys and
values of every token), ``latent`` (one row per token), ``state`` (the layer's own, of fixed size),
``model`` (nothing here: the model class keeps it), ``none`` and ``refused`` (an error is raised).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = ("full", "sliding", "chunked", "latent", "state", "encoder", "cross", "shared")
RUNNER = "vllm_gaudi/v1/worker/hpu_model_runner.py"
CACHE_ENGINE = "vllm/worker/cache_engine.py"
# vLLM's layers by the kind of cache; where an import leads to one of these, reading stops
_LEAVES = {
    "Attention": "full",
    "ChunkedLocalAttention": "chunked",
    "MLAAttention": "latent",
    "MultiHeadLatentAttentionWrapper": "latent",
    "EncoderOnlyAttention": "encoder",
    "MMEncoderAttention": "encoder",
    "CrossAttention": "cross",
    "MambaBase": "state",
    "MambaMixer": "state",
    "MambaMixer2": "state",
    "MambaCacheManager": "state",
    "MinimaxCacheManager": "state",
    "MiniMaxCacheManager": "state",
    "ConstantSizeCache": "state",
}
_WINDOWS = ("per_layer_sliding_window", "sliding_window")
_CHUNKS = ("attention_chunk_size", "use_irope")
_MODELS = "vllm.model_executor.models"
# of vLLM's other packages only these define layers with a cache
_LAYERS = ("mamba", "kda", "gdn", "linear_attn", "short_conv", "minimax", "mla", "attention")


class CacheLayers:
    """The kinds of layers with a cache that model classes make."""

    def __init__(self, upstream: Path, checkout: Path) -> None:
        self._roots = {"vllm": upstream, "vllm_gaudi": checkout}
        self._modules: dict[str, _Module | None] = {}

    def of(self, module: str, class_name: str) -> list[str]:
        """Return the kinds of a class of the registry, through every class that it names."""
        start = module if module.startswith("vllm") else f"{_MODELS}.{module}"
        found: set[str] = set()
        seen: set[tuple[str, str]] = set()
        waiting = [(start, class_name)]
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            kinds, next_places = self._read(*place)
            found |= kinds
            waiting += next_places
        return [kind for kind in KINDS if kind in found]

    def _read(self, module: str, name: str) -> tuple[set[str], list[tuple[str, str]]]:
        if name in _LEAVES and not module.startswith((_MODELS, "vllm_gaudi")):
            return {_LEAVES[name]}, []
        loaded = self._load(module)
        if loaded is None:
            return set(), []
        if name in loaded.imports:
            source, original = loaded.imports[name]
            return (set(), [(source, original)]) if _is_read(source, original) else (set(), [])
        node = loaded.definitions.get(name)
        if node is None:
            return set(), []
        named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - {name}
        places = [(module, each) for each in sorted(named)]
        return kinds_of_calls(node), places

    def _load(self, module: str) -> _Module | None:
        if module not in self._modules:
            path = self._path(module)
            self._modules[module] = _Module(module, path) if path is not None else None
        return self._modules[module]

    def _path(self, module: str) -> Path | None:
        root = self._roots.get(module.partition(".")[0])
        if root is None:
            return None
        path = root / (module.replace(".", "/") + ".py")
        package = root / module.replace(".", "/") / "__init__.py"
        return next((each for each in (path, package) if each.is_file()), None)


class _Module:
    """The definitions and imports of one file."""

    def __init__(self, name: str, path: Path) -> None:
        self.definitions: dict[str, ast.AST] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for each in ast.walk(tree):
            if isinstance(each, ast.ImportFrom):
                self._add(each, package)
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                self.definitions[node.name] = node
            # a table of the layers' classes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.definitions[node.targets[0].id] = node

    def _add(self, node: ast.ImportFrom, package: str) -> None:
        source = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            source = ".".join([*above, source]) if source else ".".join(above)
        for alias in node.names:
            self.imports[alias.asname or alias.name] = (source, alias.name)


def _is_read(source: str, name: str) -> bool:
    """Return True for an import that can lead to a layer with a cache."""
    if name in _LEAVES and source.startswith("vllm"):
        return True
    if source.startswith((_MODELS, "vllm_gaudi.")):
        return True
    below = source.removeprefix("vllm.model_executor.layers.")
    return below != source and any(part in below for part in _LAYERS)


def kinds_of_calls(node: ast.AST) -> set[str]:
    """Return the kinds that arguments of calls state: windows, MLA, encoders."""
    found: set[str] = set()
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        given = {each.arg: ast.unparse(each.value) for each in call.keywords if each.arg}
        if any(given.get(name, "None") != "None" for name in _WINDOWS):
            found.add("sliding")
        if any(given.get(name, "None") not in ("None", "False") for name in _CHUNKS):
            found.add("chunked")
        if given.get("use_mla") == "True":
            found.add("latent")
        found |= _of_type(given.get("attn_type", ""))
    return found


def _of_type(written: str) -> set[str]:
    if written.endswith(".ENCODER_DECODER"):
        return {"cross"}
    return {"encoder"} if written.endswith((".ENCODER", ".ENCODER_ONLY")) else set()


# What a version allocates


def allocation_of(checkout: Path) -> dict[str, dict[str, str]]:
    """Return allocation and place by kind of layer; empty for other code.

    The plugin decides in ``HPUModelRunner.get_kv_cache_spec``, the forks (whose default is vLLM's
    V0) in ``CacheEngine.get_cache_block_size``.
    """
    runner, engine = checkout / RUNNER, checkout / CACHE_ENGINE
    if runner.is_file():
        return _by_runner(function_in(runner, "get_kv_cache_spec"))
    if engine.is_file():
        return _by_cache_engine(function_in(engine, "get_cache_block_size"))
    return {}


def function_in(path: Path, name: str) -> ast.FunctionDef:
    """Return a function of a file, in a class or not. SystemExit without it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise SystemExit(f"{path}: no {name}")


def _entry(allocation: str, place: str, line: int) -> dict[str, str]:
    return {"allocates": allocation, "source": f"{place}:{line}"}


def _by_cache_engine(function: ast.FunctionDef) -> dict[str, dict[str, str]]:
    """Return the forks' allocation: one block size for every attention layer.

    MLA leaves out the values. The layers of a kind other than attention are not counted.
    """
    body = _code(function)
    _check_without_windows(body, CACHE_ENGINE)
    if "LayerBlockType.attention" not in body:
        raise SystemExit(f"{CACHE_ENGINE}: counts other layers than those of attention")
    attention = _assignment(function, "key_cache_entry")
    latent = _assignment(function, "value_cache_entry")
    counted = _assignment(function, "num_attention_layers")
    found = {
        kind: _entry("full", CACHE_ENGINE, attention.lineno)
        for kind in ("full", "sliding", "chunked")
    }
    has_latent = "use_mla" in ast.unparse(latent)
    found["latent"] = _entry("latent" if has_latent else "full", CACHE_ENGINE, latent.lineno)
    found["state"] = _entry("model", CACHE_ENGINE, counted.lineno)
    return found


def _assignment(function: ast.FunctionDef, name: str) -> ast.Assign:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node
    raise SystemExit(f"{CACHE_ENGINE}: no {name}")


def _by_runner(function: ast.FunctionDef) -> dict[str, dict[str, str]]:
    """Return the plugin's allocation, from the branches of the loop over layers."""
    _check_without_windows(_code(function), RUNNER)
    loop = next(node for node in function.body if isinstance(node, ast.For))
    found: dict[str, dict[str, str]] = {}
    for tested, body, line in _branches(loop.body):
        if tested == "Attention":
            found |= _attention(body)
        elif tested == "MLAAttention":
            found["latent"] = _result(body, line)
        elif tested == "MambaBase":
            found["state"] = _result(body, line)
        elif tested == "shared":
            found["shared"] = _result(body, line)
    asserted = [each for each in loop.body if isinstance(each, ast.Assert)]
    if asserted:
        found |= _attention(loop.body)
        found.setdefault("state", _entry("refused", RUNNER, asserted[0].lineno))
    found.setdefault("state", _entry("none", RUNNER, loop.lineno))
    for kind in ("sliding", "chunked"):
        found[kind] = found["full"]
    return {kind: found[kind] for kind in KINDS if kind in found}


def _code(function: ast.FunctionDef) -> str:
    """Return a function's code without its docstring and comments."""
    body = function.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return "\n".join(ast.unparse(each) for each in body)


def _check_without_windows(code: str, place: str) -> None:
    """Raise SystemExit for code that knows windows, which these rules do not."""
    for word in ("sliding", "chunk", "Window"):
        if word in code:
            raise SystemExit(
                f"{place}: the cache depends on '{word}': add a rule to {Path(__file__).name}"
            )


def _branches(body: list[ast.stmt]) -> Iterator[tuple[str, list[ast.stmt], int]]:
    """Yield the class that each branch tests for, its body and its line."""
    for statement in body:
        node: ast.stmt | None = statement
        while isinstance(node, ast.If):
            tested = _tested(node.test)
            if tested:
                yield tested, node.body, node.lineno
            node = node.orelse[0] if len(node.orelse) == 1 else None


def _tested(test: ast.expr) -> str:
    written = ast.unparse(test)
    if written == "kv_sharing_target_layer_name is not None":
        return "shared"
    if isinstance(test, ast.Call) and written.startswith("isinstance(attn_module, "):
        return ast.unparse(test.args[1])
    return ""


def _attention(body: list[ast.stmt]) -> dict[str, dict[str, str]]:
    """Return the allocation by the type of an Attention layer."""
    found: dict[str, dict[str, str]] = {}
    for statement in body:
        node: ast.stmt | None = statement
        while isinstance(node, ast.If):
            written = ast.unparse(node.test)
            if "AttentionType.ENCODER_DECODER" in written:
                found["cross"] = _result(node.body, node.lineno)
            elif "AttentionType.ENCODER" in written:
                found["encoder"] = _result(node.body, node.lineno)
            elif "AttentionType.DECODER" in written:
                found["full"] = _result(node.body, node.lineno)
                if "use_mla=" in ast.unparse(node):
                    line = int(found["full"]["source"].rpartition(":")[2])
                    found["latent"] = _entry("latent", RUNNER, line)
            node = node.orelse[0] if len(node.orelse) == 1 else None
    return found


_SPECS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "latent",
    "attn_module.get_kv_cache_spec": "state",
}


def _result(body: list[ast.stmt], line: int) -> dict[str, str]:
    """Return what a branch ends in: a spec, an error or nothing."""
    for statement in body:
        if isinstance(statement, ast.Raise):
            return _entry("refused", RUNNER, statement.lineno)
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            called = ast.unparse(statement.value.func)
            if called not in _SPECS:
                raise SystemExit(f"{RUNNER}:{statement.lineno}: an unknown kind of cache: {called}")
            return _entry(_SPECS[called], RUNNER, statement.lineno)
    return _entry("none", RUNNER, line)


def without_places(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the allocation by kind alone, to compare it with the executed one."""
    return {kind: entry["allocates"] for kind, entry in found.items()}
