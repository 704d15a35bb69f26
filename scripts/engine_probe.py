"""Execute an engine's registry, platform and envs.py; print them as JSON.

    engine_probe.py UPSTREAM CHECKOUT

``UPSTREAM`` has ``vllm/`` (empty where unknown), ``CHECKOUT`` the engine: the same folder for a
fork, the plugin's for vllm-gaudi. Only these modules are the engine's; every other import is an
empty stand-in, so that no torch and no Gaudi software is needed. Runs in a separate interpreter,
which it leaves full of stand-ins.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
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
        is_decorated = len(args) == 1 and not kwargs and isinstance(args[0], (type, types.FunctionType))
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
        for variable, value in execute(name, path).environment_variables.items():
            found[variable] = _value(value)
    return found


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


def main() -> None:
    """Print the answer."""
    upstream, checkout = (Path(each) if each else None for each in sys.argv[1:3])
    answer: dict[str, Any] = {"models": None, "quantization": None, "environment": None, "problems": []}
    sys.meta_path.append(Finder())
    if checkout is None:
        raise SystemExit("no checkout")
    questions: dict[str, Any] = {"quantization": lambda: quantization(checkout)}
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
