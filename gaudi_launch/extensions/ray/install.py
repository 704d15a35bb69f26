"""An environment with Ray Serve that borrows the embedded engine, for trials.

The embedded engine's packages are visible through a .pth file, so pip adds only what Ray lacks
(measured: 15 s, 310 MB) and the engine's environment stays as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from gaudi_launch.core.base.mirrors import Mirrors
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.engines.base import VLLM
from gaudi_launch.core.engines.detect import Installed, detect
from gaudi_launch.core.engines.entries import detect_engine, entry
from gaudi_launch.core.engines.install.installation import StepInstallation
from gaudi_launch.core.engines.install.marker import marker_of
from gaudi_launch.core.engines.install.step_runner import InstallStep, Say, pip_of
from gaudi_launch.core.engines.setups import made_by_steps
from gaudi_launch.core.host.read import read_host
from gaudi_launch.extensions.ray.engine import NAME, SERVE, VERSION

EMBEDDED = made_by_steps("cpu")


class RayEnvironment(StepInstallation):
    """Ray with the packages of the embedded engine, which it needs."""

    name = "ray"
    pins: ClassVar = {"ray": VERSION, "vllm": VLLM}

    def marker(self) -> dict[str, str]:
        return {**self.pins, "beside": str(EMBEDDED.environment().resolve())}

    def is_ready(self) -> bool:
        return super().is_ready() and self._is_beside()

    def is_newest(self) -> bool:
        return super().is_newest() and self._is_beside()

    def _is_beside(self) -> bool:
        """Return True for an environment that borrows the embedded engine in force."""
        beside = (marker_of(self.environment()) or {}).get("beside", "")
        try:
            return EMBEDDED.is_ready() and Path(beside).samefile(EMBEDDED.environment())
        except OSError:
            return False

    def detected(self, name: str) -> Installed | None:
        """Return the interpreter for this Ray Serve when the user named none.

        python3 on PATH or an engine's of `setup` where it has Ray. Ours, whose engine uses no card,
        is for that engine, and for a machine without cards. Raises LaunchError when an interpreter
        does not answer.
        """
        inner = name.partition(":")[2]
        if entry(inner).installation == EMBEDDED.name and self.is_ready():
            return detect(str(self.python()))
        found = detect_engine(None, NAME)
        if found is not None and "ray" in found.packages:
            return found
        if self.is_ready() and not read_host(machine_root()).cards:
            return detect(str(self.python()))
        # Ray is added to the engine's environment
        return detect_engine(None, inner or "auto")

    def steps(self, folder: Path) -> list[InstallStep]:
        pip = pip_of(str(folder / "bin" / "python"))
        venv = (str(EMBEDDED.python()), "-m", "venv", "--clear", str(folder))
        return [
            InstallStep("ray.setup_venv", venv),
            InstallStep("ray.setup_borrow", (), lambda: _borrow(folder)),
            InstallStep("ray.setup_install", (*pip, "install", "--quiet", SERVE)),
        ]

    def missing(self, *, demo: bool) -> list[InstallStep]:
        return EMBEDDED.missing(demo=demo) + super().missing(demo=demo)

    def setup(self, say: Say, *, demo: bool = True, mirrors: Mirrors | None = None) -> Path | None:
        """Make what is missing: the embedded engine (and demo model), then Ray."""
        EMBEDDED.setup(say, demo=demo, mirrors=mirrors)
        return super().setup(say, demo=demo, mirrors=mirrors)


RAY = RayEnvironment()


def _borrow(folder: Path) -> None:
    """Make the embedded engine's packages visible in this environment."""
    theirs = next(EMBEDDED.environment().resolve().glob("lib/python3.*/site-packages"))
    ours = next(folder.glob("lib/python3.*/site-packages"))
    (ours / "embedded_engine.pth").write_text(f"{theirs}\n", encoding="utf-8")
