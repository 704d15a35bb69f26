"""Engines by the names that users write, and what of them is installed.

A new engine is one file and one line of `ENGINES` here.

The file has a function ``create(name, python, facts)`` that returns an `Engine`; it is imported
only when that engine is used (`core.engines.registry`). `register` adds an engine of another
package in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.members import foreign, member
from gaudi_launch.core.engines import detect as detection
from gaudi_launch.core.engines.detect import Detect, Installed
from gaudi_launch.core.engines.install.contract import Installation
from gaudi_launch.core.engines.install.switch import name_of, names_in_force

# what a plan is for where no engine is installed and the model needs no other:
# HabanaAI/vllm-fork@95af7009, the server's own message of its end, names the plugin as the fork's
# successor
DEFAULT = "vllm-gaudi"
# whose start scripts --tuning reference follows where no engine is installed
SCRIPTED = "vllm-fork@1.21"
# return an `Engine`, a class that this table does not import
Create = Callable[[str, str | None, Mapping[str, str]], Any]
# the inner engine ("": any), what is installed, the interpreter
Wrap = Callable[[str, Installed | None, str | None], Any]


@dataclass(frozen=True)
class Entry:
    """One engine of the table, as far as it is known before its file is imported.

    ``create`` takes its name, its interpreter and the facts of that; ``wrap`` is that of an engine
    around another one (``NAME:ENGINE``). ``in_container``: it comes as an image, and no interpreter
    of this machine has it. ``any_version``: ``NAME@VERSION`` is accepted for versions without a
    line. ``anywhere``: it also runs without cards. ``installation`` is its environment's name in
    `INSTALLATIONS` ("": a separate one, for cards). ``demo`` serves the demo model in its place.
    ``machine`` is the simulated machine of a launch that names none. ``built``: MODULE:MEMBER of
    the recipe of the image that `setup NAME --in docker` builds, for an engine without a profile;
    ``image_versions``: that of the function that returns all versions of its images.
    """

    create: Create
    wrap: Wrap | None = None
    in_container: bool = False
    any_version: bool = False
    anywhere: bool = False
    installation: str = ""
    demo: str = ""
    machine: str = ""
    built: str = ""
    image_versions: str = ""


def _refuse(name: str, python: str | None, facts: Mapping[str, str]) -> Any:
    raise unknown(name)


# the line of every name without one
_UNKNOWN = Entry(_refuse)
NO_PACKAGES = Installed(python="PATH", engine="")


def _member(name: str) -> Any:
    """Return what MODULE:MEMBER of this package names, imported now."""
    return member(f"gaudi_launch.{name}")


def _made_by(function: str) -> Callable[..., Any]:
    """Return a function of an engine's module, imported when it is called."""
    return lambda *args: _member(function)(*args)


# what `setup` makes in addition to the environments of engines for cards
INSTALLATIONS = {
    "cpu": "extensions.vllm_cpu.install:EMBEDDED",
    "ray": "extensions.ray.install:RAY",
    "gateway": "extensions.stack.gateway.program:GATEWAY",
}
# what `setup` makes for every other engine
_ENVIRONMENT = "core.engines.install.environment:EngineEnvironment"
ENGINES: dict[str, Entry] = {
    "vllm-fork@1.21": Entry(_made_by("extensions.vllm_fork.release_1_21:Fork121.create")),
    "vllm-fork@1.22": Entry(_made_by("extensions.vllm_fork.release_1_22:Fork122.create")),
    "deepseek_r1": Entry(_made_by("extensions.vllm_fork.deepseek_r1:DeepSeekFork.create")),
    "vllm-gaudi": Entry(_made_by("core.engines.vllm_gaudi.engine:create"), any_version=True),
    "tgi@3.3.5": Entry(
        _made_by("extensions.tgi.engine:create"),
        in_container=True,
        any_version=True,
        image_versions="extensions.tgi.versions:image_versions",
    ),
    "tgi@3.2.3": Entry(_made_by("extensions.tgi.engine:create"), in_container=True),
    "cpu": Entry(
        _made_by("extensions.vllm_cpu.engine:create"),
        anywhere=True,
        installation="cpu",
        built="extensions.vllm_cpu.image:RECIPE",
    ),
    "simulated": Entry(
        _made_by("extensions.simulated.engine:create"),
        anywhere=True,
        installation="cpu",
        machine="simulated:hls2",
    ),
    # ray-serve:ENGINE names the inner engine
    "ray-serve": Entry(
        _refuse,
        _made_by("extensions.ray.engine:around"),
        anywhere=True,
        installation="ray",
        demo="ray-serve:cpu",
    ),
}
ALIASES = {
    "vllm-fork@deepseek_r1": "deepseek_r1",
    "vllm-cpu": "cpu",
    "vllm-fork": SCRIPTED,
    "tgi": "tgi@3.3.5",
}
# no engine of another package is called so
_TAKEN = ("", "auto", *ENGINES, *ALIASES)


def register(name: str, entry: Entry) -> None:
    """Add an engine under a new name.

    Raises ValueError for a name that is taken.
    """
    if name in ENGINES or name in ALIASES or name == "auto":
        raise ValueError(f"an engine is called {name} already")
    ENGINES[name] = entry


def names() -> tuple[str, ...]:
    """Return every name for --engine."""
    return ("auto", *ENGINES, *foreign("engines", _TAKEN))


def names_with_cards() -> tuple[str, ...]:
    """Return the names of engines that use cards and contain no other engine."""
    return tuple(name for name, entry in ENGINES.items() if not entry.anywhere)


def takes_cards(name: str) -> bool:
    """Return True for an engine that uses cards and contains no other engine.

    ``name`` may have any version.
    """
    found = entry(name)
    return found is not _UNKNOWN and not found.anywhere


def entry(name: str) -> Entry:
    """Return the line of this name, or of a name that takes any version.

    Return a line without an engine for a name without one.
    """
    name = ALIASES.get(name, name)
    family = name.partition("@")[0]
    versioned = (each for known, each in ENGINES.items() if known.partition("@")[0] == family)
    found = ENGINES.get(name) or next((each for each in versioned if each.any_version), None)
    if found is not None or name in _TAKEN:
        return found or _UNKNOWN
    others = foreign("engines", _TAKEN)
    return Entry(lambda *args: others[name].load()(*args)) if name in others else _UNKNOWN


def is_ray(name: str) -> bool:
    """Return True for an engine around another one, whichever that is."""
    return entry(name.partition(":")[0]).wrap is not None


def demo_engine(name: str) -> str:
    """Return the engine that serves the demo model where the user named this one."""
    return {"auto": "cpu"}.get(name, entry(name).demo or name)


def setup_name(word: str) -> str:
    """Return the engine that this value of ``setup`` means."""
    wanted = entry(word).installation or word
    made = (name for name, each in ENGINES.items() if each.installation == wanted)
    return next(made, ALIASES.get(word, word))


def setup_names() -> tuple[str, ...]:
    """Return the values of ``setup`` for engines without cards."""
    return tuple(dict.fromkeys(each.installation for each in ENGINES.values() if each.installation))


def is_made_by_steps(name: str) -> bool:
    """Return True for an entry of `INSTALLATIONS`, and for an engine that has one."""
    return (entry(name).installation or name) in INSTALLATIONS


def installation(name: str) -> Installation:
    """Return the installation of this name, or the environment of this engine."""
    path = INSTALLATIONS.get(entry(name).installation or name)
    made: Installation = _member(_ENVIRONMENT)(name) if path is None else _member(path)
    return made


def interpreter_of(name: str, installed: Installed | None) -> str | None:
    """Return the interpreter that has this engine: the given one, else that of setup."""
    if installed is not None and has(installed, name):
        return installed.python
    made = installation(name)
    return str(made.python()) if made.is_ready() else None


def has(installed: Installed | None, name: str) -> bool:
    """Return True if this interpreter has an engine; ``auto`` is any."""
    if installed is None:
        return False
    if name == "auto":
        return bool(installed.engine)
    outer, _, inner = name.partition(":")
    if not is_ray(outer):
        return _is_installed(installed, name)
    return "ray" in installed.packages and (not inner or has(installed, inner))


def detect_engine(
    python: str | None,
    name: str = "auto",
    first: Callable[[], str] = lambda: DEFAULT,
    detect: Detect = detection.detect,
) -> Installed | None:
    """Query the interpreter that has an engine; None when there is no interpreter.

    It is the given one, else python3 on PATH, else one that `setup` made: that of ``first`` before
    `DEFAULT`, before others. Raises LaunchError as ``detect`` does.
    """
    found = detect(python)
    if python is not None or has(found, name):
        return found
    for each in _made_by_setup(first):
        installed = detect(each)
        if has(installed, name):
            return installed
    return found


def _made_by_setup(first: Callable[[], str]) -> list[str]:
    """Return the interpreters in force of `setup`, in the order of `detect_engine`."""
    names = sorted({*names_in_force()} - INSTALLATIONS.keys())
    if not names:
        return []
    if len(names) > 1:
        wanted = (name_of(first()), DEFAULT)
        names.sort(key=lambda name: (*wanted, name).index(name))
    return [str(each.python()) for each in map(installation, names) if each.is_ready()]


def _is_installed(installed: Installed, name: str) -> bool:
    """Return True for an interpreter's engine, by name or with its exact version."""
    wanted = entry(name).installation or ALIASES.get(name, name)
    # 0.26 names 0.26.0
    return wanted == installed.engine or f"{exact_name(installed)}.".startswith(f"{wanted}.")


def exact_name(installed: Installed) -> str:
    """Return an interpreter's engine with the version of its plugin, if any."""
    plugin = installed.facts.get("plugin")
    return f"{installed.engine}@{plugin}" if plugin else installed.engine


def unknown(name: str) -> LaunchError:
    """Return the error (USAGE) of a name that no engine has."""
    return LaunchError("engines.unknown", ExitCode.USAGE, found=name, known=", ".join(names()))
