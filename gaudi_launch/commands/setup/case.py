"""The use cases of ``gaudi-launch setup``: install an engine, and roll it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.optional import mapped

if TYPE_CHECKING:
    from gaudi_launch.core.base.mirrors import Mirrors
    from gaudi_launch.core.engines.install.environment import Recipe
    from gaudi_launch.core.engines.install.switch import Versions
    from gaudi_launch.core.engines.releases import Release


Say = Callable[[str], None]


@dataclass(frozen=True)
class Leftovers:
    """The remains of a change of the version in force.

    ``services`` still run from the version ``old``, by name; ``used`` is True where any process of
    any user does. ``others`` are the versions that are neither in force nor the one before.
    """

    old: Path
    services: tuple[str, ...]
    used: bool
    others: tuple[Path, ...]


@dataclass(frozen=True)
class Installation:
    """The result of an installation: steps run, interpreter, and what was replaced."""

    steps_run: int
    python: str | None
    image: str | None
    replaced: Leftovers | None


@dataclass(frozen=True)
class RollBack:
    """A return to the version before; ``name`` is that of the engine's folders."""

    name: str
    folder: Path
    python: Path
    replaced: Leftovers


def install(recipe: Recipe, say: Say, mirrors: Mirrors) -> Installation:
    """Make an environment or image and put it in force. Raises LaunchError."""
    from gaudi_launch.core.engines.install import environment

    ran = environment.make(recipe, say, mirrors)
    if recipe.python is None:
        return Installation(ran, None, recipe.image, None)
    versions = environment.versions_of(recipe.engine)
    old = environment.put_in_force(recipe, say)
    replaced = _leftovers(versions, old) if old is not None else None
    return Installation(ran, str(environment.linked_python(recipe.engine)), None, replaced)


def pin_notes(release: Release, recipe: Recipe) -> tuple[str, ...]:
    """Return what is known of the versions that a recipe takes, as sentences."""
    from gaudi_launch.core.base.messages import text
    from gaudi_launch.core.engines.releases import no_constraints, trial_of

    lines = []
    if recipe.image is not None:
        lines.append(text("setup.image_by_tag", image=release.whole_image or release.bare_image))
    if not recipe.constraints:
        is_published = recipe.image is not None and recipe.image == release.whole_image
        reason = None if is_published else no_constraints(release)
        if reason is not None:
            return (*lines, reason.render())
        return tuple(lines)
    lines.append(text("setup.pins", path=recipe.constraints))
    trial = trial_of(recipe.constraints)
    if trial is not None:
        lines.append(
            text(
                "setup.pins_tried",
                date=trial.date,
                python=trial.python,
                count=trial.installed,
                imported=trial.imported,
                missing=text("common.between").join(trial.left_out),
            )
        )
    return tuple(lines)


def leftovers_of(engine: str, old: Path | None) -> Leftovers | None:
    """Return what a change of an engine leaves; None where nothing was replaced."""
    return mapped(lambda each: _leftovers(_versions(engine), each), old)


def roll_back(engine: str | None, *, dry_run: bool = False) -> RollBack:
    """Put the version in force that was in force before.

    ``engine`` is its name; without one it is the only engine that has an earlier version. Nothing
    is changed in a dry run. Raises LaunchError (USAGE) for an engine without an earlier version.
    """
    from gaudi_launch.core.engines.vllm_cpu.install import alone

    versions = _chosen(engine)
    current, before = _pair(versions, engine)
    if not dry_run:
        # what may be refused was checked without writing anything; another setup may have ended now
        with alone():
            current, before = _pair(versions, engine)
            try:
                versions.roll_back()
            except OSError as error:
                raise file_error("setup.switch_failed", error, versions.link) from None
    linked = versions.link / _python_in(before).relative_to(before)
    return RollBack(versions.name, before, linked, _leftovers(versions, current))


def _pair(versions: Versions, engine: str | None) -> tuple[Path, Path]:
    """Return the version in force and the one before. Raises LaunchError."""
    current, before = versions.in_force(), versions.replaced()
    if current is None or before is None:
        raise LaunchError("setup.no_version_before", ExitCode.USAGE, engine=engine or versions.name)
    python = _python_in(before)
    if not python.exists():
        raise LaunchError(
            "setup.version_broken",
            ExitCode.FAILED,
            path=str(before),
            python=str(python),
            engine=versions.name,
        )
    return current, before


def _chosen(engine: str | None) -> Versions:
    """Return the versions of an engine, by default of the only one with two."""
    from gaudi_launch.core.engines.install.switch import names_in_force

    if engine is not None:
        return _versions(engine)
    found = [each for each in map(_versions, names_in_force()) if each.replaced() is not None]
    if len(found) == 1:
        return found[0]
    if not found:
        raise LaunchError("setup.no_versions_before", ExitCode.USAGE)
    names = ", ".join(each.name for each in found)
    raise LaunchError("setup.several_versions", ExitCode.USAGE, known=names, first=found[0].name)


def _versions(engine: str) -> Versions:
    """Return the versions of an engine, by its name or by that of its folders."""
    from gaudi_launch.core.engines.install.environment import versions_of
    from gaudi_launch.core.engines.vllm_cpu import install as cpu_install
    from gaudi_launch.extensions.ray import install as ray_install
    from gaudi_launch.extensions.stack.gateway import program

    for each in (cpu_install.versions(), ray_install.versions(), program.versions()):
        if each.name == engine:
            return each
    return versions_of(engine)


def _python_in(folder: Path) -> Path:
    """Return the interpreter of a folder, which is an environment or has one."""
    for each in ("venv/bin/python", "bin/python"):
        if (folder / each).exists():
            return folder / each
    return folder / "bin/python"


def _leftovers(versions: Versions, old: Path) -> Leftovers:
    from gaudi_launch.core.engines.install.in_use import is_used

    keep = (versions.in_force(), versions.replaced(), old)
    others = tuple(folder for folder in versions.folders() if folder not in keep)
    return Leftovers(old, _services_from(old), is_used(old), others)


def _services_from(folder: Path) -> tuple[str, ...]:
    """Return the names of the user's running services whose engine is in a folder."""
    from gaudi_launch.core.services.state import registry, store

    names = []
    for service in registry.services():
        engine = None
        if service.alive:
            engine = (store.read(service.folder, "plan.json") or {}).get("engine")
        python = mapping(engine).get("python")
        if isinstance(python, str) and folder.resolve() in Path(python).parent.resolve().parents:
            names.append(service.name)
    return tuple(names)
