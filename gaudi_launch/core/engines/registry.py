"""The engine of a launch: named, installed, or the one that a model needs."""

from __future__ import annotations

from collections.abc import Callable

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.entries import (
    ALIASES,
    DEFAULT,
    ENGINES,
    NO_PACKAGES,
    SCRIPTED,
    entry,
    exact_name,
    has,
)
from gaudi_launch.core.host.accelerators import product_of
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.request import Request

# -q is an option of this engine only
WITH_INC_FP8 = "deepseek_r1"
# tried in this order for a model that `DEFAULT` cannot load
_OTHERS = ("vllm-fork@1.22", "vllm-fork@1.21")


def families(which: Callable[[Engine], bool]) -> tuple[str, ...]:
    """Return the names, without versions, of the engines for which this is true.

    Imports every engine.
    """
    engines = [find(name) for name in ENGINES]
    return tuple(dict.fromkeys(engine.identity.name for engine in engines if which(engine)))


def labels(which: Callable[[Engine], bool]) -> tuple[str, ...]:
    """Return the names as users write them of the engines for which this is true.

    Imports every engine.
    """
    engines = [find(name) for name in ENGINES]
    return tuple(dict.fromkeys(engine.identity.label for engine in engines if which(engine)))


def assumed_for(model: Model, product: Callable[[], str], *, tuning: str = "auto") -> str:
    """Return the engine that a plan of this model is for where none is installed.

    Its profile may name one; a release of the fork there is the oldest that loads it. DeepSeek-V3's
    architecture is served by the branch that was made for it, on Gaudi2
    (HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/ README.md, start_vllm.sh). ``product``
    returns the cards (``gaudi3``, "" where they are unknown) and is called only where it matters.
    ``tuning`` "reference" is that of a script.
    """
    profile = profiles.match(model)
    wanted = ""
    if model.architecture == "DeepseekV3ForCausalLM":
        wanted = WITH_INC_FP8
    if profile is not None and profile.engine not in ("", *_OTHERS):
        wanted = profile.engine
    too_new = wanted == WITH_INC_FP8 and product().startswith("gaudi3")
    if wanted and not too_new:
        return wanted
    if tuning == "reference":
        return SCRIPTED
    # another engine only for a model that the default cannot load
    able = (name for name in (DEFAULT, *_OTHERS) if not find(name).support(model).refused)
    return next(able, DEFAULT)


def name_for(
    request: Request,
    installed: Installed | None,
    model: Callable[[], Model],
    product: Callable[[], str],
) -> str:
    """Return the request's engine.

    For ``auto`` where none is installed the one of this model on these cards.
    """
    if is_decided(request.engine, installed):
        return request.engine
    return assumed_for(model(), product, tuning=request.tuning)


def name_over_hosts(
    request: Request, installed: Installed | None, model: Model, host: Callable[[], Host]
) -> str:
    """Return the engine of a name as `name_for`, for several hosts.

    Where none is installed, only an engine that its makers tried over several hosts.
    """
    name = name_for(request, installed, lambda: model, lambda: product_of(host()))
    if is_decided(request.engine, installed):
        return name
    over = find(name).over_hosts
    if over is not None and over.validated:
        return name
    return SCRIPTED


def is_decided(name: str, installed: Installed | None) -> bool:
    """Return True if the engine is named or installed, so the model does not decide."""
    return name != "auto" or (installed is not None and installed.engine in ENGINES)


def find(name: str, installed: Installed | None = None, python: str | None = None) -> Engine:
    """Return the engine of this name; ``auto`` is the installed one, else `DEFAULT`.

    Raises LaunchError (USAGE).
    """
    if name == "auto":
        name = DEFAULT
        if installed is not None and installed.engine in ENGINES:
            name = installed.engine
    name = ALIASES.get(name, name)
    outer, _, inner = name.partition(":")
    wrap: Callable[..., Engine] | None = entry(outer).wrap
    if wrap is not None:
        return wrap(inner, installed, python)
    create: Callable[..., Engine] = entry(name).create
    if installed is None or not has(installed, name):
        # facts of an interpreter that has another engine say nothing about this one
        return create(name, python, {})
    return create(name, python or installed.python, dict(installed.facts))


def check_engine(engine: Engine, installed: Installed | None) -> None:
    """Check that the interpreter has the planned engine.

    Raises LaunchError (MACHINE). An engine in a container is in no interpreter: its image is looked
    for with docker (`containers.make_ready`).
    """
    if engine.inner is not None:
        _check_around(engine.inner, installed)
        return
    if not engine.needs_interpreter:
        return
    wanted = engine.environment
    known = installed or NO_PACKAGES
    found = known.engine
    version = known.facts.get("plugin", engine.identity.version)
    if found == wanted and version != engine.identity.version:
        found, wanted = exact_name(known), engine.identity.exact
    if found == wanted:
        return
    if engine.environment != engine.identity.label:
        raise LaunchError("simulated.missing", ExitCode.MACHINE, python=known.python)
    if not known.engine:
        raise LaunchError("serve.no_engine", ExitCode.MACHINE, python=known.python, engine=wanted)
    raise LaunchError(
        "serve.other_engine",
        ExitCode.MACHINE,
        python=known.python,
        found=found,
        engine=wanted,
    )


def _check_around(inner: Engine, installed: Installed | None) -> None:
    """Check Ray Serve and the engine inside it. Raises LaunchError (MACHINE)."""
    known = installed or NO_PACKAGES
    if "ray" not in known.packages:
        raise LaunchError("ray.missing", ExitCode.MACHINE, python=known.python)
    if inner.identity.name != "transformers":
        check_engine(inner, installed)
    elif "transformers" not in known.packages:
        raise LaunchError("ray.no_transformers", ExitCode.MACHINE, python=known.python)
