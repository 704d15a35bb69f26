"""The use cases of ``gaudi-launch setup``: install an engine, and roll it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.mirrors import Mirrors
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.engines.entries import installation
from gaudi_launch.core.engines.install import environment
from gaudi_launch.core.engines.install.contract import Installation
from gaudi_launch.core.engines.install.environment import Recipe
from gaudi_launch.core.engines.install.in_use import is_used
from gaudi_launch.core.engines.install.step_runner import alone
from gaudi_launch.core.engines.install.switch import Versions, names_in_force
from gaudi_launch.core.engines.releases import Release, no_constraints, trial_of
from gaudi_launch.core.services.state import registry, store

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
class SetupResult:
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


def install(recipe: Recipe, say: Say, mirrors: Mirrors) -> SetupResult:
    """Make an environment or image and put it in force. Raises LaunchError."""
    ran = environment.make(recipe, say, mirrors)
    if recipe.python is None:
        return SetupResult(ran, None, recipe.image, None)
    made = environment.EngineEnvironment(recipe.engine)
    replaced = leftovers_of(made, environment.put_in_force(recipe, say))
    return SetupResult(ran, str(made.python()), None, replaced)


def pin_notes(release: Release, recipe: Recipe) -> tuple[str, ...]:
    """Return what is known of the versions that a recipe takes, as sentences."""
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


def leftovers_of(made: Installation, old: Path | None) -> Leftovers | None:
    """Return what a change of version leaves; None where nothing was replaced."""
    return mapped(partial(_leftovers, made.versions()), old)


def roll_back(engine: str | None, *, dry_run: bool = False) -> RollBack:
    """Put the version in force that was in force before.

    ``engine`` is its name; without one it is the only engine that has an earlier version. Nothing
    is changed in a dry run. Raises LaunchError (USAGE) for an engine without an earlier version.
    """
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
    if engine is not None:
        return installation(engine).versions()
    all_versions = [installation(name).versions() for name in names_in_force()]
    found = [each for each in all_versions if each.replaced() is not None]
    if len(found) == 1:
        return found[0]
    if not found:
        raise LaunchError("setup.no_versions_before", ExitCode.USAGE)
    names = ", ".join(each.name for each in found)
    raise LaunchError("setup.several_versions", ExitCode.USAGE, known=names, first=found[0].name)


def _python_in(folder: Path) -> Path:
    """Return the interpreter of a folder, which is an environment or has one."""
    for each in ("venv/bin/python", "bin/python"):
        if (folder / each).exists():
            return folder / each
    return folder / "bin/python"


def _leftovers(versions: Versions, old: Path) -> Leftovers:
    keep = (versions.in_force(), versions.replaced(), old)
    others = tuple(folder for folder in versions.folders() if folder not in keep)
    return Leftovers(old, _services_from(old), is_used(old), others)


def _services_from(folder: Path) -> tuple[str, ...]:
    """Return the names of the user's running services whose engine is in a folder."""
    names = []
    for service in registry.services():
        engine = None
        if service.alive:
            engine = (store.read(service.folder, "plan.json") or {}).get("engine")
        python = mapping(engine).get("python")
        if isinstance(python, str) and folder.resolve() in Path(python).parent.resolve().parents:
            names.append(service.name)
    return tuple(names)
