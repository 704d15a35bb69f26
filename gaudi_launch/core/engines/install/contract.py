"""The contract of what `setup` makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from gaudi_launch.core.base.paths import engines_dir
from gaudi_launch.core.engines.detect import Installed, detect
from gaudi_launch.core.engines.install.switch import Versions


class Installation(ABC):
    """An environment with versions side by side, one of them in force."""

    @abstractmethod
    def versions(self) -> Versions:
        """Return its versions on this machine."""

    @property
    def expected(self) -> str:
        """Return the version that this program installs, "" where the user chooses it."""
        return ""

    def environment(self) -> Path:
        """Return the folder of the version in force, else where the first one will be."""
        versions = self.versions()
        return versions.in_force() or engines_dir() / versions.name

    def answer(self) -> str:
        """Return the version that the installed program shows, "" for none."""
        return ""

    @abstractmethod
    def python(self) -> Path:
        """Return the path of its interpreter, which may not exist."""

    def is_ready(self) -> bool:
        """Return True for a complete environment that this program can use."""
        return self.python().exists()

    def detected(self, name: str) -> Installed | None:
        """Return the interpreter for the engine ``name`` when the user named none.

        Raises LaunchError when an interpreter does not answer.
        """
        if not self.is_ready():
            return None
        return detect(str(self.python()))
