"""Engines by the names that users write. A new engine is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gaudi_launch.engines.detect import Installed
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.accelerators import product_of
from gaudi_launch.host.records import Host
from gaudi_launch.models.records import Model
from gaudi_launch.planning.engine import Engine

# what a plan is for where no engine is installed and the model asks for no other: the release of the manual that
# most users follow
DEFAULT = "vllm-fork@1.21"
_DEEPSEEK = "deepseek_r1"


def _fork(version: str) -> Callable[[str | None, Mapping[str, str]], Engine]:
    def make(python: str | None, facts: Mapping[str, str]) -> Engine:
        from gaudi_launch.engines.vllm_fork import VllmFork

        return VllmFork(version, python, facts)

    return make


def _cpu(python: str | None, facts: Mapping[str, str]) -> Engine:
    from gaudi_launch.engines.vllm_cpu import VllmCpu

    return VllmCpu(python, facts)


def _gaudi(python: str | None, facts: Mapping[str, str]) -> Engine:
    from gaudi_launch.engines.vllm_gaudi import VllmGaudi

    return VllmGaudi(python, facts)


def _tgi(version: str) -> Callable[[str | None, Mapping[str, str]], Engine]:
    def make(python: str | None, facts: Mapping[str, str]) -> Engine:
        from gaudi_launch.engines.tgi import Tgi

        return Tgi(version, facts)

    return make


def _ray(python: str | None, facts: Mapping[str, str]) -> Engine:
    return _around("", None, python)


ENGINES: dict[str, Callable[[str | None, Mapping[str, str]], Engine]] = {
    "vllm-fork@1.21": _fork("1.21"),
    "vllm-fork@1.22": _fork("1.22"),
    "deepseek_r1": _fork("deepseek_r1"),
    "vllm-gaudi": _gaudi,
    "tgi@3.3.5": _tgi("3.3.5"),
    "tgi@3.2.3": _tgi("3.2.3"),
    "cpu": _cpu,
    # ray-serve:ENGINE names the engine inside
    "ray-serve": _ray,
}
ALIASES = {
    "vllm-fork@deepseek_r1": "deepseek_r1",
    "vllm-cpu": "cpu",
    "vllm-fork": DEFAULT,
    "vllm-gaudi@main": "vllm-gaudi",
    "tgi": "tgi@3.3.5",
}
# engines that come as an image: no interpreter on this machine has them
_IMAGES = "tgi"


def names() -> tuple[str, ...]:
    """Every name for --engine."""
    return ("auto", *ENGINES)


def in_container(name: str) -> bool:
    """Does this engine run in a container, so that no interpreter is asked for it?"""
    return name.partition("@")[0] == _IMAGES


def on_cpu(name: str) -> bool:
    """Is this the embedded engine, which runs on the CPU?"""
    return ALIASES.get(name, name) == "cpu"


def is_ray(name: str) -> bool:
    """Is this Ray Serve, around whatever engine?"""
    return name.partition(":")[0] == "ray-serve"


def interpreter_of(name: str, installed: Installed | None) -> str | None:
    """The interpreter that has the engine of this name: the one that was asked, else what setup made for it."""
    from gaudi_launch.engines import embedded, ray_environment

    if installed is not None and has(installed, name):
        return installed.python
    if on_cpu(name) and embedded.engine_is_ready():
        return str(embedded.python_path())
    if is_ray(name) and ray_environment.is_ready():
        return str(ray_environment.python_path())
    return None


def _made(name: str) -> Callable[[str | None, Mapping[str, str]], Engine] | None:
    made = ENGINES.get(name)
    if made is None and in_container(name):
        from gaudi_launch.engines.tgi_words import VERSIONS

        version = name.partition("@")[2].removesuffix("-gaudi")
        return _tgi(version) if version in VERSIONS else None
    return made


def has(installed: Installed | None, name: str) -> bool:
    """Does this interpreter have the engine of this name?"""
    if installed is None:
        return False
    return "ray" in installed.packages if name == "ray-serve" else installed.engine == name


def assumed_for(model: Model, product: Callable[[], str]) -> str:
    """The engine that a plan of this model is for where none is installed.

    Its profile may name one; DeepSeek-V3's architecture is served by the branch that was made for it, on Gaudi2
    (HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/README.md, start_vllm.sh). ``product`` is asked for the cards
    (``gaudi3``, "" where they are not known) only where it matters.
    """
    from gaudi_launch import profiles

    profile = profiles.match(model)
    wanted = profile.engine if profile is not None else ""
    if not wanted and model.architecture == "DeepseekV3ForCausalLM":
        wanted = _DEEPSEEK
    if wanted == _DEEPSEEK and product().startswith("gaudi3"):
        return DEFAULT
    return wanted or DEFAULT


def name_for(name: str, installed: Installed | None, model: Model, host: Callable[[], Host]) -> str:
    """``name``, but for ``auto`` where no engine is installed the one that this model asks for on this machine."""
    return name if is_decided(name, installed) else assumed_for(model, lambda: product_of(host()))


def is_decided(name: str, installed: Installed | None) -> bool:
    """Is the engine named, or installed, so that the model has no say in it?"""
    return name != "auto" or (installed is not None and installed.engine in ENGINES)


def find(name: str, installed: Installed | None = None, python: str | None = None) -> Engine:
    """The engine of this name; ``auto`` is the installed one, else `DEFAULT`. Raises LaunchError (USAGE)."""
    if name == "auto":
        name = installed.engine if installed is not None and installed.engine in ENGINES else DEFAULT
    name = ALIASES.get(name, name)
    outer, _, inner = name.partition(":")
    if outer == "ray-serve":
        return _around(inner, installed, python)
    make = _made(name)
    if make is None:
        raise LaunchError("engines.unknown", ExitCode.USAGE, found=name, known=", ".join(names()))
    # facts of an interpreter that has another engine say nothing about this one
    fitting = installed is not None and installed.engine == name
    facts = dict(installed.facts) if installed is not None and fitting else {}
    return make(python or (installed.python if installed is not None and fitting else None), facts)


def _around(inner: str, installed: Installed | None, python: str | None) -> Engine:
    """Ray Serve around the engine ``inner`` ("": the installed one, else plain generation, else the default)."""
    from gaudi_launch.engines.hugging_face import NAME as PLAIN
    from gaudi_launch.engines.hugging_face import HuggingFace
    from gaudi_launch.engines.ray_serve import NAME, RayServe, architectures

    names = (name for name in ENGINES if name != NAME and not in_container(name))
    known = ", ".join((*(f"{NAME}:{name}" for name in names), f"{NAME}:{PLAIN}"))
    packages = installed.packages if installed is not None else {}
    has_ray = installed is not None and "ray" in packages
    facts = {"ray": packages["ray"]} if has_ray else {}
    where = python or (installed.python if installed is not None and has_ray else None)
    facts_of_plain = {PLAIN: packages[PLAIN]} if PLAIN in packages else {}
    plain = HuggingFace(where, facts_of_plain, on_cards=not packages or "habana-torch-plugin" in packages)
    if inner == PLAIN or (not inner and has_ray and installed and not installed.engine and PLAIN in packages):
        return RayServe(plain, where, facts)
    if in_container(inner):
        raise LaunchError("ray.container", ExitCode.USAGE, engine=inner, known=known)
    if inner.partition(":")[0] == NAME:
        raise LaunchError("engines.unknown", ExitCode.USAGE, found=f"{NAME}:{inner}", known=known)
    found = RayServe(find(inner or "auto", installed, where), where, facts)
    if not inner and has_ray and installed is not None and PLAIN in packages:
        return replace(found, spare=plain, knows=architectures(installed.facts))
    return found


def check_engine(engine: Engine, installed: Installed | None) -> None:
    """Is the planned engine what the interpreter has? Raises LaunchError (MACHINE). An engine in a container is in
    no interpreter: its image is looked for when docker is (`containers.make_ready`)."""
    inner = getattr(engine, "inner", None)
    if inner is not None:
        _check_around(inner, installed)
        return
    identity = engine.identity
    if in_container(identity.name):
        return
    wanted = identity.label
    if installed is None or not installed.engine:
        where = installed.python if installed is not None else "PATH"
        raise LaunchError("serve.no_engine", ExitCode.MACHINE, python=where, engine=wanted)
    if installed.engine != wanted:
        raise LaunchError(
            "serve.other_engine", ExitCode.MACHINE, python=installed.python, found=installed.engine, engine=wanted
        )


def _check_around(inner: Engine, installed: Installed | None) -> None:
    """Ray Serve and the engine inside it. Raises LaunchError (MACHINE)."""
    if installed is None or "ray" not in installed.packages:
        raise LaunchError("ray.missing", ExitCode.MACHINE, python=installed.python if installed else "PATH")
    if inner.identity.name != "transformers":
        check_engine(inner, installed)
    elif "transformers" not in installed.packages:
        raise LaunchError("ray.no_transformers", ExitCode.MACHINE, python=installed.python)
