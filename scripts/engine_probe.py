"""Execute parts of an engine and print their answers as JSON.

    engine_probe.py UPSTREAM CHECKOUT

It runs the registry, the platform, envs.py and the allocation of the cache. ``UPSTREAM`` has
``vllm/`` (empty where unknown), ``CHECKOUT`` the engine: the same folder for a fork, the plugin's
for vllm-gaudi. Only this code is the engine's; every other import is an empty stand-in, so that no
torch and no Gaudi software is needed. Runs in a separate interpreter, which it leaves full of
stand-ins.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.util
import io
import json
import os
import sys
import types
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any


class Anything(type):
    """A class whose attributes, calls, items and unions are classes of the same kind."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})

    def __getitem__(cls, item: object) -> Any:
        return cls

    def __or__(cls, other: object) -> Any:
        return cls

    def __ror__(cls, other: object) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        is_decorated = (
            len(args) == 1 and not kwargs and isinstance(args[0], (type, types.FunctionType))
        )
        return args[0] if is_decorated else cls

    def __mro_entries__(cls, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()


class StandIn(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = Anything(name, (), {})
        setattr(self, name, made)
        return made


class Finder(MetaPathFinder, Loader):
    """Finds a stand-in for everything that Python itself does not have."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] in sys.stdlib_module_names:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return


def execute(name: str, path: Path) -> types.ModuleType:
    """Execute one file as this module."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def registry(upstream: Path, checkout: Path) -> dict[str, list[str]]:
    """Return module and class by architecture, with those that the plugin registers."""
    name = "vllm.model_executor.models.registry"
    module = execute(name, upstream / "vllm/model_executor/models/registry.py")
    found = {arch: [str(part) for part in entry[:2]] for arch, entry in module._VLLM_MODELS.items()}
    plugin = checkout / "vllm_gaudi/models/__init__.py"
    if plugin.is_file():
        found.update(_registered(plugin))
    return found


def _registered(path: Path) -> dict[str, list[str]]:
    """Return what the plugin's ``register_model`` registers."""
    found: dict[str, list[str]] = {}

    class Registry:
        @staticmethod
        def register_model(architecture: str, target: str) -> None:
            module, _, class_name = target.partition(":")
            found[architecture] = [module, class_name]

    module = execute("vllm_gaudi.models", path)
    module.ModelRegistry = Registry  # type: ignore[attr-defined]
    module.register_model()
    return found


def quantization(checkout: Path) -> list[str]:
    """Return the platform's supported methods."""
    platform = checkout / "vllm_gaudi/platform.py"
    name = "vllm_gaudi.platform"
    if not platform.is_file():
        platform, name = checkout / "vllm/platforms/hpu.py", "vllm.platforms.hpu"
    return [str(each) for each in execute(name, platform).HpuPlatform.supported_quantization]


def environment(upstream: Path, checkout: Path) -> dict[str, Any]:
    """Return the values of every variable of envs.py in an empty environment.

    "?" where one cannot be computed.
    """
    found: dict[str, Any] = {}
    for name, path in (
        ("vllm.envs", upstream / "vllm/envs.py"),
        ("vllm_gaudi.envs", checkout / "vllm_gaudi/envs.py"),
    ):
        if not path.is_file():
            continue
        first, second = _values_of(name, path), _values_of(name, path)
        # a name drawn at random is another one the next time
        for variable, value in first.items():
            found[variable] = value if value == second[variable] else "?"
    return found


def _values_of(name: str, path: Path) -> dict[str, Any]:
    """Return the values of one reading and restore the environment.

    envs.py exports a name that it drew, and would find it the next time
    (vllm-project/vllm 0.26.0:vllm/envs.py get_env_or_set_default).
    """
    before = dict(os.environ)
    module = execute(name, path)
    try:
        return {
            variable: _value(compute) for variable, compute in module.environment_variables.items()
        }
    finally:
        os.environ.clear()
        os.environ.update(before)


def _value(compute: Any) -> Any:
    try:
        value = compute()
    except Exception:
        return "?"
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if not isinstance(value, str):
        return "?"
    # the folder of a user, a host's name: not the same on another machine
    is_local = str(Path.home()) in value or value.startswith("/")
    return "?" if is_local else value


# The KV cache


def cache(checkout: Path) -> dict[str, str]:
    """Return what the engine's function allocates for each kind of layer."""
    runner = checkout / "vllm_gaudi/v1/worker/hpu_model_runner.py"
    if runner.is_file():
        return _by_runner(*_compiled(runner, "get_kv_cache_spec"))
    return _by_cache_engine(
        *_compiled(checkout / "vllm/worker/cache_engine.py", "get_cache_block_size")
    )


class Spec:
    """A stand-in for every ``...Spec`` of vLLM that keeps its arguments."""

    def __init__(self, **given: Any) -> None:
        self.given = given


def _compiled(path: Path, name: str) -> tuple[Any, dict[str, Any]]:
    """Return one function of a file, and the stand-ins for every name that it uses."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    function = next(
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name
    )
    function.decorator_list = []
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} - {*dir(builtins)}
    names: dict[str, Any] = {
        each: type(each, (Spec,) if each.endswith("Spec") else (), {}) for each in used
    }
    code = compile(ast.Module([function], []), str(path), "exec")
    exec(code, names)  # the engine's own function
    return names[name], names


# attributes of vllm.attention.AttentionType
_TYPES = {
    "DECODER": "decoder",
    "ENCODER": "encoder",
    "ENCODER_ONLY": "encoder_only",
    "ENCODER_DECODER": "both",
}


def _by_runner(function: Any, names: dict[str, Any]) -> dict[str, str]:
    for name, value in _TYPES.items():
        setattr(names["AttentionType"], name, value)

    def answer(kind: str, base: str, **attributes: Any) -> str:
        made = {
            "num_kv_heads": 8,
            "head_size": 64,
            "kv_sharing_target_layer_name": None,
            **attributes,
        }
        layer = type(kind, (names.get(base, object),), made)()
        config = types.SimpleNamespace(
            compilation_config=types.SimpleNamespace(static_forward_context={"layer": layer}),
            cache_config=types.SimpleNamespace(block_size=128, cache_dtype="auto"),
            model_config=types.SimpleNamespace(use_mla=kind == "latent"),
        )
        runner = types.SimpleNamespace(
            vllm_config=config, kv_cache_dtype="bf16", shared_kv_cache_layers={}
        )
        try:
            found = function(runner)
        except (AssertionError, NotImplementedError):
            return "refused"
        return _allocation(found.get("layer"))

    decoder = _TYPES["DECODER"]
    state = {"get_kv_cache_spec": lambda self, config: "state"}
    found = {
        "full": answer("full", "Attention", attn_type=decoder),
        "sliding": answer("sliding", "Attention", attn_type=decoder, sliding_window=4096),
        "chunked": answer("chunked", "Attention", attn_type=decoder, attention_chunk_size=8192),
        "latent": answer(
            "latent", "MLAAttention" if "MLAAttention" in names else "Attention", attn_type=decoder
        ),
        "state": answer("state", "MambaBase", **state),
        "encoder": answer("encoder", "Attention", attn_type=_TYPES["ENCODER_ONLY"]),
        "cross": answer("cross", "Attention", attn_type=_TYPES["ENCODER_DECODER"]),
    }
    shared = answer("shared", "Attention", attn_type=decoder, kv_sharing_target_layer_name="layer0")
    if shared == "none":
        found["shared"] = shared
    return found


def _allocation(spec: Any) -> str:
    if spec is None:
        return "none"
    if spec == "state":
        return "state"
    is_latent = type(spec).__name__ == "MLAAttentionSpec" or spec.given.get("use_mla") is True
    if is_latent:
        return "latent"
    return "full" if type(spec).__name__ == "FullAttentionSpec" else type(spec).__name__


def _by_cache_engine(function: Any, names: dict[str, Any]) -> dict[str, str]:
    """Return the allocation of a fork by the bytes of one block.

    Two layers of attention and one of another kind, 8 heads of 64 elements, blocks of 16 tokens and
    types of one byte.
    """
    names["LayerBlockType"].attention = "attention"
    names["get_dtype_size"] = lambda dtype: 1
    names["STR_DTYPE_TO_TORCH_DTYPE"] = {}

    def answer(**attributes: Any) -> str:
        model = types.SimpleNamespace(
            dtype="bf16",
            get_head_size=lambda: 64,
            get_num_kv_heads=lambda parallel: 8,
            get_num_layers_by_block_type=lambda parallel, kind: {"attention": 2}.get(kind, 1),
            **({"use_mla": False, "get_sliding_window": lambda: None} | attributes),
        )
        caching = types.SimpleNamespace(cache_dtype="auto", block_size=16, sliding_window=None)
        size = function(caching, model, None)
        row = 2 * 16 * 8 * 64
        return {2 * row: "full", row: "latent"}.get(size, f"{size} bytes")

    full = answer()
    return {
        "full": full,
        "sliding": answer(get_sliding_window=lambda: 4096, sliding_window=4096),
        "chunked": answer(attention_chunk_size=8192),
        "latent": answer(use_mla=True),
        # the layer that is not attention has added no bytes
        "state": "model" if full == "full" else full,
    }


def main() -> None:
    """Print the answer."""
    upstream, checkout = (Path(each) if each else None for each in sys.argv[1:3])
    sections = ("models", "quantization", "environment", "cache")
    answer: dict[str, Any] = {**dict.fromkeys(sections), "problems": []}
    sys.meta_path.append(Finder())
    if checkout is None:
        raise SystemExit("no checkout")
    questions: dict[str, Any] = {
        "quantization": lambda: quantization(checkout),
        "cache": lambda: cache(checkout),
    }
    if upstream is not None:
        questions["environment"] = lambda: environment(upstream, checkout)
        questions["models"] = lambda: registry(upstream, checkout)
    for name, question in questions.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                answer[name] = question()
        except Exception as error:
            answer["problems"].append(f"{name}: {type(error).__name__}: {error}")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
