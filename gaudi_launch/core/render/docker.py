"""A container as one docker command, with its health check."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from gaudi_launch.core.engines.docker_command import Limits, docker_run, ulimits_of
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.render.plan_container import about_cards, required
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.script import START, STRICT, array, as_they_stand, asked, written
from gaudi_launch.core.render.text import comments

# seconds from SIGTERM until the engine is killed
STOP_SECONDS = 30
HEALTH_SECONDS = {"interval": 10, "timeout": 10}
HEALTH_RETRIES = 3
# images of engines have Python but not always curl; a proxy that docker passes on must not be used
# for localhost
_HEALTH = (
    "import sys, urllib.request as r; r.build_opener(r.ProxyHandler({})).open(sys.argv[1], "
    "timeout=5).close()"
)


def health_words(container: Container) -> tuple[str, ...]:
    """Return the command that exits with 0 when the engine answers.

    () for a container without an address.
    """
    if not container.url:
        return ()
    return ("python3", "-c", _HEALTH, f"{container.url}{container.health}")


def run_words(
    container: Container, name: str, *, limits: Limits | None = None, with_health: bool = True
) -> tuple[str, ...]:
    """Return the command of the container in the foreground.

    It is removed when it ends. ``limits`` are used instead of those of rendered files.
    """
    if limits is None:
        limits = ulimits_of(container)
    options = [f"--stop-timeout={STOP_SECONDS}"]
    options += [f"--ulimit={limit}={soft}:{hard}" for limit, (soft, hard) in limits.items()]
    health = health_words(container)
    if health and with_health:
        options += [
            f"--health-cmd={shlex.join(health)}",
            f"--health-start-period={container.start_seconds}s",
            f"--health-retries={HEALTH_RETRIES}",
            *(f"--health-{kind}={seconds}s" for kind, seconds in HEALTH_SECONDS.items()),
        ]
    return docker_run(container, name, options=options)


def render(
    container: Container,
    name: str,
    head: Sequence[str],
    dockerfile: str | None,
    files: Mapping[str, str],
) -> Rendered:
    """Return one command as a script.

    ``head`` are comments, ``dockerfile`` builds an unpublished image; ``files`` are texts by path
    that the script writes for the engine.
    """
    program, *words = run_words(container, name)
    lines = [*START, *as_they_stand((*words, *files, *files.values())), *comments(head), *STRICT]
    lines += asked(required(container.secrets))
    if dockerfile is not None:
        image = shlex.quote(container.image)
        lines += [
            f"if ! docker image inspect {image} > /dev/null 2>&1; then",
            f"    docker build --tag {image} - << 'DOCKERFILE'",
            *dockerfile.splitlines(),
            "DOCKERFILE",
            "fi",
        ]
    folders = [shlex.quote(mount.source) for mount in container.mounts if mount.fill]
    if folders:
        # docker would create them itself, as root
        lines.append(f"mkdir -p -- {' '.join(folders)}")
    lines += written(files)
    lines += ["", *array("words", words), f'exec {program} "${{words[@]}}" "$@"']
    return Rendered(
        {"docker.sh": "\n".join(lines) + "\n"},
        frozenset({"docker.sh"}),
        notes=about_cards(container),
    )
