"""Engines in containers of docker or podman: image, folders, and the end.

Everything is done with the program on PATH; its settings (contexts, DOCKER_HOST, containers.conf)
apply.
"""

from __future__ import annotations

import logging
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.engines.docker_command import PODMAN_RUNTIME, RUNTIME, ULIMITS, Limits
from gaudi_launch.core.planning.container import PODMAN, PROGRAMS, Container
from gaudi_launch.core.planning.engine import Engine

_log = logging.getLogger(__name__)

_SECONDS = 30.0
_QUICK_SECONDS = 3.0
# the program itself failed, before the container ran (docs: docker run and podman-run(1), exit
# status)
_NOT_RUN = 125
_CAP_SYS_RESOURCE = 24
_KINDS = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE}

Say = Callable[[str], None]


def make_ready(container: Container, say: Say) -> None:
    """Check and prepare everything that a container needs before it starts.

    That is its program, the Gaudi runtime, a free name, folders and the image. Folders that the
    engine fills are created, so that docker does not create them as root; a missing image is
    fetched, with the progress on stderr. Raises LaunchError: MACHINE for the program, USAGE for a
    missing folder.
    """
    program = container.program
    check_program(program, needs_cards=bool(container.modules))
    if _ask(program, "container", "inspect", container.name).returncode == 0:
        raise LaunchError(f"{program}.name_taken", ExitCode.MACHINE, name=container.name)
    _folders(container)
    if not has_image(container.image, program):
        _fetch(container.image, program, say)


def check_program(program: str, *, needs_cards: bool) -> None:
    """Raise LaunchError (MACHINE) for a program that cannot run Gaudi containers.

    It is missing, does not answer, or has no runtime for Gaudi cards.
    """
    if shutil.which(program) is None:
        raise LaunchError(f"{program}.missing", ExitCode.MACHINE)
    if program == PODMAN:
        _check_podman(needs_cards=needs_cards)
        return
    answer = _ask(program, "info", "--format", "{{json .Runtimes}}")
    try:
        runtimes = parse_json(answer.stdout)
    except ValueError:
        runtimes = None
    if answer.returncode != 0 or not isinstance(runtimes, dict):
        raise LaunchError("docker.no_answer", ExitCode.MACHINE, why=_last(answer))
    if needs_cards and RUNTIME not in runtimes:
        known = ", ".join(sorted(runtimes)) or "-"
        raise LaunchError("docker.no_runtime", ExitCode.MACHINE, runtime=RUNTIME, known=known)


def _check_podman(*, needs_cards: bool) -> None:
    answer = _ask(PODMAN, "info", "--format", "{{.Host.OCIRuntime.Name}}")
    if answer.returncode != 0:
        raise LaunchError("podman.no_answer", ExitCode.MACHINE, why=_last(answer))
    if not needs_cards:
        return
    with_cards = _ask(PODMAN, f"--runtime={PODMAN_RUNTIME}", "info")
    if with_cards.returncode != 0:
        known = answer.stdout.strip() or "-"
        raise LaunchError(
            "podman.no_runtime", ExitCode.MACHINE, runtime=PODMAN_RUNTIME, known=known
        )


def program_of(argv: Sequence[str]) -> str:
    """Return the program that a container's command starts: docker or podman."""
    names = {Path(word).name for word in argv[:1]}
    return next((program for program in PROGRAMS if program in names), PROGRAMS[0])


def settable_limits(program: str) -> Limits | None:
    """Return the limits that a container of this program can have.

    Return None for the usual ones.

    podman passes them to a child process, which cannot exceed this process's own limits without the
    capability for it (setrlimit(2)); docker's daemon has it. podman 4.3 raises the number of
    processes, too, where other limits are given without that one (tried).
    """
    if program != PODMAN or _may_raise_limits():
        return None
    found = {"nproc": _processes()}
    for name, (soft, hard) in ULIMITS.items():
        most = resource.getrlimit(_KINDS[name])[1]
        found[name] = (_least(soft, most), _least(hard, most))
    return found


def _processes() -> tuple[int, int]:
    """Return the limits of the number of processes that podman's child can set.

    podman 4.3 lowers its own ones to the kernel's number of process IDs (tried).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    try:
        most = int(Path("/proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        _log.debug("the number of process IDs is not read: %s", error)
        return soft, hard
    return _least(soft, most), _least(hard, most)


def _least(wanted: int, most: int) -> int:
    """Return the smaller limit; -1 is unlimited."""
    known = [limit for limit in (wanted, most) if limit != resource.RLIM_INFINITY]
    return min(known, default=resource.RLIM_INFINITY)


def _may_raise_limits() -> bool:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        _log.debug("capabilities are not read: %s", error)
        return False
    for line in lines:
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def has_image(image: str, program: str = PROGRAMS[0], seconds: float = _SECONDS) -> bool:
    """Return True if the image is on this machine; False without the program."""
    return (
        shutil.which(program) is not None
        and _ask(program, "image", "inspect", image, seconds=seconds).returncode == 0
    )


def image_of(engine: Engine) -> str | None:
    """Return the image of an engine that comes as one, if it is on this machine.

    Return None also where docker does not answer.
    """
    if engine.image is None:
        return None
    try:
        if not has_image(engine.image, seconds=_QUICK_SECONDS):
            return None
        return engine.image
    except LaunchError as error:
        _log.debug("docker cannot be queried: %s", error)
        return None


def remover(name: str, argv: Sequence[str]) -> Callable[[int | None], None]:
    """Return a function that removes the container of this name.

    ``argv`` is the command that started it. It is called when the client ended: a killed client
    leaves its container running. After exit status 125 no container of this launch runs; the name
    may then be another launch's.
    """
    program = program_of(argv)
    words = ["rm", "--force"]
    if program == PODMAN:
        # by default it waits for the container's end before it kills it
        words.append("--time=0")

    def remove(status: int | None) -> None:
        if status != _NOT_RUN:
            with best_effort(_log, "remove the container", LaunchError):
                _ask(program, *words, name)

    return remove


def _folders(container: Container) -> None:
    """Raise LaunchError for a missing folder or file that the container needs."""
    for mount in container.mounts:
        path = Path(mount.source)
        try:
            if mount.fill:
                path.mkdir(parents=True, exist_ok=True)
            there = path.exists()
        except OSError as error:
            raise file_error("docker.folder_failed", error, path, ExitCode.MACHINE) from None
        if not there:
            raise LaunchError(
                "docker.no_folder", ExitCode.USAGE, path=str(path), target=mount.target
            )
        if mount.read_only:
            _links(path)
        if mount.read_only and container.confined:
            _check_readable(path, container.user)
    config = _outside(container, container.env.get("QUANT_CONFIG", ""))
    if config is not None and not config.is_file():
        raise LaunchError(
            "docker.no_folder", ExitCode.USAGE, path=str(config), target="QUANT_CONFIG"
        )


def _check_readable(path: Path, user: str) -> None:
    """Raise LaunchError (USAGE) for a file that the container's user cannot read.

    ``user`` is this process's, or "" for the image's own, which is another one than root.
    """
    if user:
        return
    files = [path]
    if path.is_dir():
        files += sorted(path.iterdir())
    for file in files:
        if not file.stat().st_mode & stat.S_IROTH:
            raise LaunchError("docker.unreadable", ExitCode.USAGE, path=str(file), folder=str(path))


def _links(folder: Path) -> None:
    """Refuse links to targets that are not visible inside the container.

    Raises LaunchError (USAGE) for the first one.
    """
    try:
        inside, entries = folder.resolve(), sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink() and not entry.resolve().is_relative_to(inside):
            raise LaunchError(
                "docker.link",
                ExitCode.USAGE,
                path=str(entry),
                target=str(entry.resolve()),
                folder=str(folder),
            )


def _outside(container: Container, inside: str) -> Path | None:
    """Return the path on this machine of a container's file in one of its folders."""
    for mount in container.mounts:
        # relative to the image's working folder, of which the last part of the path is enough
        name = mount.target.rsplit("/", 1)[-1]
        for start in (f"{mount.target}/", f"./{name}/", f"{name}/"):
            if inside.startswith(start):
                return Path(mount.source) / inside.removeprefix(start)
    return None


def _fetch(image: str, program: str, say: Say) -> None:
    say(text("docker.fetching", image=image))
    # its progress goes to stderr, where ours is
    done = interrupt.run(
        [program, "pull", image], streams=interrupt.Streams(output=sys.stderr, errors=None)
    )
    if done.returncode != 0:
        raise LaunchError(
            f"{program}.fetch_failed", ExitCode.MACHINE, image=image, status=done.returncode
        )


def _ask(program: str, *words: str, seconds: float = _SECONDS) -> subprocess.CompletedProcess[str]:
    try:
        return interrupt.run([program, *words], seconds=seconds)
    except subprocess.TimeoutExpired:
        raise LaunchError(f"{program}.slow", ExitCode.MACHINE, seconds=seconds) from None
    except OSError as error:
        raise LaunchError(
            f"{program}.no_answer", ExitCode.MACHINE, why=error.strerror or str(error)
        ) from None


def _last(answer: subprocess.CompletedProcess[str]) -> str:
    lines = answer.stderr.strip().splitlines()
    if lines:
        return lines[-1][:300].rstrip(".?! ")
    return f"exit status {answer.returncode}"
