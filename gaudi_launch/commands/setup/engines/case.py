"""The use case of ``gaudi-launch engines``: engines, features, the installed one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.engines import entries, needed_release, registry, setups
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.engines.install.installation import StepInstallation
from gaudi_launch.core.engines.known_versions import installed_versions, version_of, versions
from gaudi_launch.core.engines.releases import PinTrial, constraints_of, release_of, trial_of
from gaudi_launch.core.engines.support import ended
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.services.containers import image_of


@dataclass(frozen=True)
class EngineState:
    """An engine by the name that users write.

    ``installed``: its interpreter or image, empty without; ``facts_date``: date of the commit that
    the facts of this version were read from; ``ended``: date of the end of its releases;
    ``constraints``: the trial of the package versions that setup takes, None where there was none.
    """

    name: str
    engine: Engine
    installed: str | None
    packages: Mapping[str, str]
    facts_date: str | None
    ended: str | None
    constraints: PinTrial | None = None


@dataclass(frozen=True)
class EngineListing:
    """All engines, and the interpreter that was queried; None without one.

    ``gateway`` is the installed program in front of several models, None without it. ``versions``
    are all with facts, the newest of each engine last, then those of installed files.
    """

    python: str | None
    engines: tuple[EngineState, ...]
    gateway: StepInstallation | None = None
    versions: tuple[Version, ...] = ()


def listing(python: str | None) -> EngineListing:
    """List the engines; ``python`` replaces the interpreter on PATH.

    Raises LaunchError.
    """
    installed = entries.detect_engine(python)
    states = []
    for name in entries.ENGINES:
        engine = registry.find(name, installed)
        has = entries.has(installed, name)
        if engine.in_container:
            where = image_of(engine)
        else:
            where = entries.interpreter_of(name, installed)
        facts = version_of(engine.identity.name, engine.identity.version)
        state = EngineState(
            name,
            engine,
            where,
            packages=installed.packages if has and installed is not None else {},
            facts_date=mapped(lambda each: each.date, facts),
            ended=ended(engine.identity.label),
            constraints=mapped(trial_of, mapped(constraints_of, release_of(name))),
        )
        states.append(state)
    known = (*versions(), *installed_versions().values(), *needed_release.image_versions())
    made = setups.made_by_steps("gateway")
    gateway = made if made.is_ready() else None
    return EngineListing(
        mapped(lambda found: found.python, installed), tuple(states), gateway, known
    )
