"""Installations that are made by steps, complete by their marker."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gaudi_launch.core.base.messages import Message, message, text
from gaudi_launch.core.base.mirrors import NONE, Mirrors, read
from gaudi_launch.core.engines.install.change import change, place_for
from gaudi_launch.core.engines.install.contract import Installation
from gaudi_launch.core.engines.install.marker import is_whole, mark, marker_of
from gaudi_launch.core.engines.install.step_runner import (
    InstallStep,
    Say,
    alone,
    mirrored,
    run_steps,
)
from gaudi_launch.core.engines.install.switch import Versions


@dataclass(frozen=True)
class PipPackages:
    """The packages of an installation, for a host without a network.

    ``engine`` is taken without its requirements; ``write_requirements`` writes those that count,
    from the folder of its wheel to a file; ``more`` are further packages.
    """

    engine: str
    write_requirements: Callable[[Path, Path], None]
    more: tuple[str, ...]


@dataclass(frozen=True)
class ImageRequest:
    """An image to build with ``program``, which is docker or podman.

    ``base`` is the image it is made of, ``demo``: the demo model's folder is made too.
    """

    program: str
    base: str
    mirrors: Mirrors = NONE
    demo: bool = True


@dataclass(frozen=True)
class ImageRecipe:
    """An image that `setup` builds, of an engine without a profile.

    ``base`` returns the base image of an option and of the environment, ``planned`` the commands of
    a build that is not run; ``build`` returns the number of steps that it ran.
    """

    image: str
    base: Callable[[str | None, Mapping[str, str]], str]
    planned: Callable[[ImageRequest, Mapping[str, str]], Sequence[InstallStep]]
    build: Callable[[ImageRequest, Mapping[str, str], Say], int]


class StepInstallation(Installation):
    """An environment made by steps, complete by its marker.

    ``name`` is that of its folders, ``pins`` are the versions that this program installs, by their
    keys in the marker, the first one that of the environment. ``binary`` is its program in bin/;
    ``modules`` are imported to try a new version; ``takes`` are options of `setup` that not every
    installation has; ``packages`` are what `offline pack` collects.
    """

    name: ClassVar[str]
    pins: ClassVar[Mapping[str, str]]
    binary: ClassVar[str] = "python"
    modules: ClassVar[tuple[str, ...]] = ("vllm",)
    takes: ClassVar[tuple[str, ...]] = ("--torch-index", "--no-demo")
    packages: ClassVar[PipPackages | None] = None

    @abstractmethod
    def steps(self, folder: Path) -> list[InstallStep]:
        """Return the steps that make the environment in a folder, in order."""

    def versions(self) -> Versions:
        return Versions(self.name, lambda folder: marker_of(folder) is not None)

    def place(self) -> Path:
        """Return the folder into which the expected version is installed.

        Raises LaunchError (FAILED) for a complete one that cannot be used here.
        """
        return place_for(self.versions(), self.marker(), tuple(self.pins))

    def python(self) -> Path:
        return self.environment() / "bin" / "python"

    def program(self, folder: Path | None = None) -> Path:
        """Return what it is installed for, by default in force; it may not exist."""
        return (folder or self.environment()) / "bin" / self.binary

    def marker(self) -> dict[str, str]:
        """Return the marker of an environment of the expected version."""
        return dict(self.pins)

    @property
    def expected(self) -> str:
        """Return the version that this program installs."""
        return next(iter(self.pins.values()))

    def version(self) -> str:
        """Return the version in force; without one that which is installed next."""
        found = marker_of(self.environment()) or {}
        return found.get(next(iter(self.pins)), self.expected)

    def is_ready(self) -> bool:
        """Return True for a complete one of this version, or one rolled back to."""
        return self.program().exists() and (self.is_newest() or self.versions().is_rolled_back())

    def is_newest(self) -> bool:
        """Return True if the version in force is the one that this program installs."""
        return is_whole(self.environment(), self.pins) and self.program().exists()

    def check(self, folder: Path) -> None:
        """Raise LaunchError where it cannot be made in this folder."""

    def check_launch(self) -> None:
        """Raise LaunchError (MACHINE) where its engine could not start on this machine."""

    def missing(self, *, demo: bool) -> list[InstallStep]:
        """Return the steps that `setup` would run."""
        return [] if self.is_ready() else self.steps(self.environment())

    def setup(self, say: Say, *, demo: bool = True, mirrors: Mirrors | None = None) -> Path | None:
        """Install the expected version next to the others, try it, and put it in force.

        ``say`` gets one sentence per step; ``mirrors`` are those of environment and file where
        None. Return the version that was replaced, None for none. Raises LaunchError with the step
        that failed and its last lines; the version before is in force then.
        """
        with alone() as temporary:
            return self.renew(say, read() if mirrors is None else mirrors, temporary)

    def renew(self, say: Say, mirrors: Mirrors, temporary: Path) -> Path | None:
        """Make the expected version and put it in force, while setup is locked."""
        if self.is_newest():
            say(text("serve.setup_have_engine", path=self.environment()))
            return None
        folder, marker = self.place(), self.marker()
        if not is_whole(folder, marker) or not self.program(folder).exists():
            self.check(folder)
            run_steps(mirrored(self.steps(folder), mirrors), say, mirrors, temporary)
            mark(folder, marker)
        return change(self.versions(), folder, folder / "bin" / "python", say, self.modules)

    def facts(self) -> dict[str, str]:
        """Return what `setup --json` shows of it."""
        return {"python": str(self.python())}

    def done(self, seconds: int) -> Message:
        """Return the sentence after a setup that took this time."""
        return message("serve.setup_done", python=str(self.python()), seconds=seconds)
