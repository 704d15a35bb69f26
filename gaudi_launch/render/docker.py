"""A container as one docker command, with what keeps it healthy."""

from __future__ import annotations

import shlex

from gaudi_launch.engines.docker import docker_run
from gaudi_launch.planning.container import Container

# open files: what vLLM raises its own limit to ("Found ulimit of %s and failed to automatically increase"); locked
# memory: docs "Docker Installation", for jobs that register memory with a network card
ULIMITS = {"memlock": (-1, -1), "nofile": (65535, 65535)}
# seconds from SIGTERM until the engine is killed
STOP_SECONDS = 30
HEALTH_SECONDS = {"interval": 10, "timeout": 10}
HEALTH_RETRIES = 3
# images of engines have Python but not always curl; a proxy that docker hands on must not be asked for localhost
_HEALTH = "import sys, urllib.request as r; r.build_opener(r.ProxyHandler({})).open(sys.argv[1], timeout=5).close()"


def health_words(container: Container) -> tuple[str, ...]:
    """The command that ends with 0 when the engine answers; () for a container without an address."""
    if not container.url:
        return ()
    return ("python3", "-c", _HEALTH, f"{container.url}{container.health}")


def run_words(container: Container, name: str) -> tuple[str, ...]:
    """The container in the foreground, as docker's words; it is removed when it ends."""
    options = [f"--stop-timeout={STOP_SECONDS}"]
    options += [f"--ulimit={limit}={soft}:{hard}" for limit, (soft, hard) in ULIMITS.items()]
    health = health_words(container)
    if health:
        options += [
            f"--health-cmd={shlex.join(health)}",
            f"--health-start-period={container.start_seconds}s",
            f"--health-retries={HEALTH_RETRIES}",
            *(f"--health-{kind}={seconds}s" for kind, seconds in HEALTH_SECONDS.items()),
        ]
    return docker_run(container, name, options=options)
