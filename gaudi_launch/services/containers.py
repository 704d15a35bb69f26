"""Engines in containers: docker, image, folders, and cleanup at the end.

Everything is done with the ``docker`` program on PATH; its settings (contexts, DOCKER_HOST) apply.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gaudi_launch import interrupt
from gaudi_launch.debug_log import best_effort
from gaudi_launch.engines.docker_command import RUNTIME
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.planning.container import Container
from gaudi_launch.planning.engine import Engine

_log = logging.getLogger(__name__)

_SECONDS = 30.0
_QUICK_SECONDS = 3.0
# docker itself failed, before the container ran (docs: docker run, exit status)
_NOT_RUN = 125

Say = Callable[[str], None]


def make_ready(container: Container, say: Say) -> None:
    """Check and prepare everything that a container needs before it starts.

    That is docker, its Gaudi runtime, a free name, folders and the image. Folders that the engine
    fills are created, so that docker does not create them as root; a missing image is fetched, with
    docker's progress on stderr. Raises LaunchError: MACHINE for docker, USAGE for a missing folder.
    """
    check_docker(needs_cards=bool(container.modules))
    if _ask("container", "inspect", container.name).returncode == 0:
        raise LaunchError("docker.name_taken", ExitCode.MACHINE, name=container.name)
    _folders(container)
    if not has_image(container.image):
        _fetch(container.image, say)


def check_docker(*, needs_cards: bool) -> None:
    """Raise LaunchError (MACHINE) for a docker that cannot run Gaudi containers.

    It is missing, its daemon does not answer, or it has no runtime for Gaudi cards.
    """
    if shutil.which("docker") is None:
        raise LaunchError("docker.missing", ExitCode.MACHINE)
    answer = _ask("info", "--format", "{{json .Runtimes}}")
    try:
        runtimes = json.loads(answer.stdout)
    except ValueError:
        runtimes = None
    if answer.returncode != 0 or not isinstance(runtimes, dict):
        raise LaunchError("docker.no_answer", ExitCode.MACHINE, why=_last(answer))
    if needs_cards and RUNTIME not in runtimes:
        known = ", ".join(sorted(runtimes)) or "-"
        raise LaunchError("docker.no_runtime", ExitCode.MACHINE, runtime=RUNTIME, known=known)


def has_image(image: str, seconds: float = _SECONDS) -> bool:
    """Return True if the image is on this machine; False without docker."""
    return (
        shutil.which("docker") is not None
        and _ask("image", "inspect", image, seconds=seconds).returncode == 0
    )


def image_of(engine: Engine) -> str | None:
    """Return the image of an engine that comes as one, if it is on this machine.

    Return None also where docker does not answer.
    """
    if engine.image is None:
        return None
    try:
        return engine.image if has_image(engine.image, _QUICK_SECONDS) else None
    except LaunchError as error:
        _log.debug("docker cannot be queried: %s", error)
        return None


def remover(name: str) -> Callable[[int | None], None]:
    """Return a function that removes the container of this name.

    It is called when the docker client ended: a killed client leaves its container running. After
    exit status 125 no container of this launch runs; the name may then be another launch's.
    """

    def remove(status: int | None) -> None:
        if status != _NOT_RUN:
            with best_effort(_log, "remove the container", LaunchError):
                _ask("rm", "--force", name)

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
            why = error.strerror or str(error)
            raise LaunchError(
                "docker.folder_failed", ExitCode.MACHINE, path=str(path), why=why
            ) from None
        if not there:
            raise LaunchError(
                "docker.no_folder", ExitCode.USAGE, path=str(path), target=mount.target
            )
        if mount.read_only:
            _links(path)
    config = _outside(container, container.env.get("QUANT_CONFIG", ""))
    if config is not None and not config.is_file():
        raise LaunchError(
            "docker.no_folder", ExitCode.USAGE, path=str(config), target="QUANT_CONFIG"
        )


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


def _fetch(image: str, say: Say) -> None:
    from gaudi_launch.messages import text

    say(text("docker.fetching", image=image))
    # its progress goes to stderr, where ours is
    done = interrupt.run(
        ["docker", "pull", image], streams=interrupt.Streams(output=sys.stderr, errors=None)
    )
    if done.returncode != 0:
        raise LaunchError(
            "docker.fetch_failed", ExitCode.MACHINE, image=image, status=done.returncode
        )


def _ask(*words: str, seconds: float = _SECONDS) -> subprocess.CompletedProcess[str]:
    try:
        return interrupt.run(["docker", *words], seconds=seconds)
    except subprocess.TimeoutExpired:
        raise LaunchError("docker.slow", ExitCode.MACHINE, seconds=seconds) from None
    except OSError as error:
        raise LaunchError(
            "docker.no_answer", ExitCode.MACHINE, why=error.strerror or str(error)
        ) from None


def _last(answer: subprocess.CompletedProcess[str]) -> str:
    lines = answer.stderr.strip().splitlines()
    return lines[-1][:300].rstrip(".?! ") if lines else f"exit status {answer.returncode}"
