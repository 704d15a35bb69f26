"""Steps that install something, run one after another by one setup at a time.

Every step can be run again; a marker, written last, shows what is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from gaudi_launch.core.base import interrupt, locks
from gaudi_launch.core.base.child_log import end_of
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.mirrors import NONE, Mirrors, read
from gaudi_launch.core.base.paths import engines_dir
from gaudi_launch.core.base.redact import redact_text

TORCH = "2.13.0+cpu"
TORCH_WANTED = f"torch=={TORCH}"
# the PyTorch project's index of CPU builds, for machines without a local CPU build
_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
_LEAST_PYTHON = (3, 11)
_LAST_LINES = 15
_PIP_VERBS = ("install", "download", "wheel")

Say = Callable[[str], None]


@dataclass(frozen=True)
class InstallStep:
    """One step: its message ID, its command, and its Python work.

    The command is () for Python work alone, of which ``files`` are the texts that it writes.
    """

    id: str
    argv: tuple[str, ...]
    work: Callable[[], object] | None = None
    files: Mapping[Path, str] = field(default_factory=dict)


def pip_of(python: str) -> tuple[str, ...]:
    """Return the first arguments of an interpreter's pip, without prompts."""
    return (python, "-m", "pip", "--disable-pip-version-check", "--no-input")


def base_python() -> str:
    """Return an interpreter for an engine without cards.

    It is ours, else a newer one on PATH. Raises LaunchError (MACHINE).
    """
    if sys.version_info[:2] >= _LEAST_PYTHON:
        return sys.executable
    for minor in range(14, 10, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    ours = ".".join(str(n) for n in sys.version_info[:2])
    raise LaunchError("serve.setup_python", ExitCode.MACHINE, found=ours, least="3.11")


def mirrored(steps: list[InstallStep], mirrors: Mirrors) -> list[InstallStep]:
    """Return the steps with pip using the mirrors instead of its default."""
    return [replace(step, argv=_asking(step.argv, mirrors)) for step in steps]


def _asking(argv: tuple[str, ...], mirrors: Mirrors) -> tuple[str, ...]:
    at = next((at for at, word in enumerate(argv) if word in _PIP_VERBS), None)
    if at is None or "--no-index" in argv:
        return argv
    more = mirrors.torch_words if TORCH_WANTED in argv else ()
    return (*argv[: at + 1], *mirrors.pip_words, *more, *argv[at + 1 :])


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
    if done.returncode and TORCH_WANTED in argv and is_public:
        done = _try((*argv, "--extra-index-url", _TORCH_INDEX), variables)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise LaunchError(
            "serve.setup_failed",
            ExitCode.FAILED,
            step=name,
            why=f"exit status {done.returncode}",
            detail=redact_text("\n".join(lines[-_LAST_LINES:])),
        )


def run_logged(step: InstallStep, log: Path, variables: Mapping[str, str] | None = None) -> None:
    """Run a step's command with its output in a log. Raises LaunchError (FAILED).

    ``variables`` None: those of this process.
    """
    with log.open("ab") as output:
        output.write(f"\n$ {json.dumps(step.argv)}\n".encode())
        output.flush()
        begin = output.tell()
        try:
            both = interrupt.Streams(output=output, errors=output)
            status = interrupt.run(step.argv, env=variables, streams=both).returncode
        except OSError as error:
            output.write((error.strerror or str(error)).encode())
            status = 127
    if status:
        raise LaunchError(
            "serve.setup_failed",
            ExitCode.FAILED,
            step=text(step.id),
            why=text("setup.status", status=status, log=str(log)),
            detail="\n".join(end_of(log, 20_000, begin).splitlines()[-_LAST_LINES:]),
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
