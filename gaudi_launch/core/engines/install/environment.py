"""An engine's environment, made step by step: a virtual environment or an image.

Completed steps are recorded, so that a second run resumes where the first one stopped.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.mirrors import NONE, Mirrors, exported_proxies
from gaudi_launch.core.base.paths import engines_dir, write_whole
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.engines.install.change import change
from gaudi_launch.core.engines.install.contract import Installation
from gaudi_launch.core.engines.install.in_use import check_unused
from gaudi_launch.core.engines.install.install_steps import SetupExtras, code_steps, dockerfile
from gaudi_launch.core.engines.install.step_runner import (
    InstallStep,
    Say,
    alone,
    child_variables,
    run_logged,
)
from gaudi_launch.core.engines.install.switch import Versions, name_of
from gaudi_launch.core.engines.releases import Release, constraints_of
from gaudi_launch.core.planning.container import PROGRAMS

_log = logging.getLogger(__name__)

PLACES = ("venv", *PROGRAMS)
LOG = "setup.log"
_RECORD = "setup.json"
_PYTHON = "venv/bin/python"
# pip's options that say where packages are, with the number of their values
_PLACES_OF_PACKAGES = {"--index-url": 1, "--find-links": 1, "--no-index": 0}
# queries an interpreter without importing anything of Gaudi's
_HAS_TORCH = "import importlib.util as u, sys; sys.exit(u.find_spec('habana_frameworks') is None)"


@dataclass(frozen=True)
class Recipe:
    """The steps of one environment.

    ``files`` are texts by path that are written first; it ends in the interpreter ``python`` or in
    the image ``image``, which ``program`` makes.
    """

    engine: str
    folder: Path
    steps: tuple[InstallStep, ...]
    files: dict[Path, str]
    python: str | None = None
    image: str | None = None
    constraints: str = ""
    program: str = PROGRAMS[0]

    @property
    def record(self) -> Path:
        """Return the path of the record of completed steps.

        An environment and an image of one engine may both be made.
        """
        if self.image is None:
            return self.folder / _RECORD
        # each program has its own store of images
        suffix = "" if self.program == PROGRAMS[0] else f"-{self.program}"
        return self.folder / f"setup-image{suffix}.json"


def folder_of(release: Release) -> Path:
    """Return the folder of an image and of an environment's first version."""
    return engines_dir() / name_of(release.engine)


@dataclass(frozen=True)
class EngineEnvironment(Installation):
    """The environment of an engine for cards, complete by the record of its steps."""

    engine: str

    def versions(self) -> Versions:
        return Versions(name_of(self.engine), _is_finished)

    def python(self) -> Path:
        """Return the interpreter of the version in force, whichever that will be."""
        return self.versions().link / _PYTHON


def in_venv(release: Release, base: str, extras: SetupExtras) -> Recipe:
    """Return the recipe of a virtual environment with the PyTorch of ``base``.

    No package index has PyTorch for Gaudi. A complete environment is never changed: the recipe is
    that of the one in force where it has all these steps, else of one with exactly these, else of
    an unfinished one, else of a new one. Raises LaunchError (USAGE) for an engine that is published
    as an image only.
    """
    if release.bare_image is None:
        raise LaunchError("setup.image_only", ExitCode.USAGE, engine=release.engine)
    versions = EngineEnvironment(release.engine).versions()
    for folder in reversed(versions.folders()):
        recipe = _in_folder(folder, release, base, extras)
        has_all = remembered(recipe) == len(recipe.steps)
        if has_all and (
            folder == versions.in_force() or len(_recorded(recipe)) == len(recipe.steps)
        ):
            return recipe
    return _in_folder(versions.folder_for_new(), release, base, extras)


def _in_folder(folder: Path, release: Release, base: str, extras: SetupExtras) -> Recipe:
    venv, source = folder / "venv", folder / "src"
    python = str(folder / _PYTHON)
    constraints = "" if extras.unpinned else constraints_of(release) or ""
    extras = replace(extras, constraints=constraints)
    steps = [
        InstallStep("setup.venv", (base, "-m", "venv", "--system-site-packages", str(venv))),
        InstallStep("setup.source", ("mkdir", "-p", str(source))),
        *code_steps(release, python, str(source), extras),
    ]
    return Recipe(release.engine, folder, tuple(steps), {}, python=python, constraints=constraints)


def in_image(release: Release, extras: SetupExtras, program: str = PROGRAMS[0]) -> Recipe:
    """Return the recipe of the published image, or of one built on the bare image.

    Raises LaunchError (USAGE) for options that a published image cannot satisfy.
    """
    folder = folder_of(release)
    own = extras.vision or extras.scale_out
    if release.whole_image is not None and not own:
        for flag in extras.mirrors.options:
            if flag != "--registry":
                raise LaunchError("setup.not_for", ExitCode.USAGE, flag=flag, engine=release.engine)
        pulled = _pulled(release.whole_image, extras.mirrors, program)
        return Recipe(
            release.engine, folder, pulled, {}, image=release.whole_image, program=program
        )
    if release.bare_image is None:
        raise LaunchError("setup.image_as_is", ExitCode.USAGE, engine=release.engine)
    file = folder / "docker" / "Dockerfile"
    pins = "" if extras.unpinned else constraints_of(release) or ""
    image = (
        release.built_image
        + ("-vision" if extras.vision else "")
        + ("-scale-out" if extras.scale_out else "")
    )
    # this machine's proxies; docker build, "--build-arg": a name alone takes its value from
    # docker's environment, so that a password is not on the command line
    words: list[str] = []
    for name in exported_proxies(os.environ):
        words += ["--build-arg", name]
    steps = (
        InstallStep("setup.pull", (program, "pull", extras.mirrors.image(release.bare_image))),
        InstallStep(
            "setup.build",
            (
                *(program, "build", *words),
                *("--tag", image, "--file", str(file), str(file.parent)),
            ),
        ),
    )
    return Recipe(
        release.engine,
        folder,
        steps,
        {file: dockerfile(release, extras)},
        image=image,
        constraints=pins,
        program=program,
    )


def _pulled(image: str, mirrors: Mirrors, program: str) -> tuple[InstallStep, ...]:
    """Return the steps that bring a published image.

    An image from a mirror is tagged with its published name, which plans and files use.
    """
    source = mirrors.image(image)
    pull = InstallStep("setup.pull", (program, "pull", source))
    if source == image:
        return (pull,)
    return pull, InstallStep("setup.tag", (program, "tag", source, image))


def check(recipe: Recipe, base: str, extras: SetupExtras) -> None:
    """Check that this machine can make it.

    Raises LaunchError (MACHINE); nothing was changed then.
    """
    if recipe.image is not None:
        if shutil.which(recipe.program) is None:
            raise LaunchError("setup.no_docker", ExitCode.MACHINE, program=recipe.program)
        return
    try:
        status = interrupt.run([base, "-c", _HAS_TORCH]).returncode
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("setup.bad_python", ExitCode.MACHINE, python=base, why=why) from None
    if status:
        raise LaunchError("setup.no_torch", ExitCode.MACHINE, python=base, engine=recipe.engine)
    if shutil.which("git") is None:
        raise LaunchError("setup.no_git", ExitCode.MACHINE)
    if extras.scale_out and os.geteuid() != 0:
        raise LaunchError("setup.needs_root", ExitCode.MACHINE)


def make(recipe: Recipe, say: Say, mirrors: Mirrors = NONE) -> int:
    """Run the remaining steps; return how many were run.

    ``say`` gets one sentence per step.

    Raises LaunchError (FAILED) with the step that failed and its last lines.
    """
    with alone() as temporary:
        variables = child_variables(mirrors)
        # a program that makes images has a separate place
        if recipe.image is None:
            variables["TMPDIR"] = str(temporary)
        try:
            recipe.folder.mkdir(parents=True, exist_ok=True)
            for path, content in recipe.files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
            done = remembered(recipe)
            if done < len(recipe.steps) and recipe.python is not None:
                check_unused(recipe.folder)
            for number, step in enumerate(recipe.steps[done:], start=done + 1):
                say(f"[{number}/{len(recipe.steps)}] {text(step.id)}")
                run_logged(step, recipe.folder / LOG, variables)
                # the first steps are done
                document = {
                    "schema": 1,
                    "engine": recipe.engine,
                    "steps": len(recipe.steps),
                    "done": _keys(recipe)[:number],
                }
                write_whole(recipe.record, json.dumps(document, indent=1))
        except OSError as error:
            raise file_error("serve.setup_folder", error, recipe.folder) from None
    return len(recipe.steps) - done


def linked_python(engine: str) -> Path:
    """Return the interpreter of an engine's version in force, whichever that will be."""
    return EngineEnvironment(engine).python()


def put_in_force(recipe: Recipe, say: Say) -> Path | None:
    """Put a complete environment in force; return the one that it replaces.

    A version that replaces another is tried first. Return None where nothing is replaced. Raises
    LaunchError (FAILED); the old one is in force then.
    """
    if recipe.python is None:
        return None
    with alone():
        return change(
            EngineEnvironment(recipe.engine).versions(), recipe.folder, Path(recipe.python), say
        )


def _is_finished(folder: Path) -> bool:
    """Return True for a folder whose environment has all its steps.

    Also for one of an older gaudi-launch, which did not record how many it has.
    """
    try:
        document = read_json(folder / _RECORD)
        done, steps = len(document["done"]), document.get("steps")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.debug("the record of an installation is not read: %s", error)
        return False
    return (steps is None or done >= steps) and (folder / _PYTHON).exists()


def remembered(recipe: Recipe) -> int:
    """Return how many of the recipe's first steps are done.

    A step that changed, and all after it, are not done, and none is done when their result was
    removed.
    """
    before = _recorded(recipe)
    if recipe.python is not None and not Path(recipe.python).exists():
        return 0
    count = 0
    for key, entry in zip(_keys(recipe), before, strict=False):
        if _placeless(key, recipe.folder) != _placeless(entry, recipe.folder):
            break
        count += 1
    all_done = count == len(recipe.steps)
    if all_done and recipe.image and not _has_image(recipe.image, recipe.program):
        return 0
    return count


def _recorded(recipe: Recipe) -> list[tuple[str, ...]]:
    """Return the completed steps by the record; [] without one."""
    try:
        entries = read_json(recipe.record)["done"]
        return [tuple(str(word) for word in entry) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.debug("the record of an installation is not read: %s", error)
        return []


def _has_image(image: str, program: str) -> bool:
    """Return True if the image still exists.

    If the program is missing or does not answer, its first step reports that.
    """
    try:
        return not interrupt.run([program, "image", "inspect", image]).returncode
    except OSError as error:
        _log.debug("%s cannot be queried: %s", program, error)
        return False


def _keys(recipe: Recipe) -> list[tuple[str, ...]]:
    """Return the identity of each step: its arguments, and the texts that it reads."""
    texts = tuple(recipe.files.values())
    return [(*step.argv, *texts) for step in recipe.steps]


def _placeless(key: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """Return a step without the path of its folder, which may have several paths.

    Without pip's mirror too: another one gives the same packages.
    """
    for option, values in _PLACES_OF_PACKAGES.items():
        if option in key:
            at = key.index(option)
            key = (*key[:at], *key[at + 1 + values :])
    path = re.compile(rf"/[^\s'\"]*?/{re.escape(folder.name)}(?=/|$)")
    return tuple(path.sub("@", word) for word in key)
