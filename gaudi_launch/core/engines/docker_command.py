"""A Container as a command line of docker or podman.

Pure: nothing here runs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.server_address import in_url
from gaudi_launch.core.engines.base import base_name
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.planning.container import PODMAN, Container, Mount

# docs: Docker Installation;
# huggingface/text-generation-inference@db931fcf:docs/source/backends/gaudi.mdx
RUNTIME = "habana"
GAUDI_WORDS = (f"--runtime={RUNTIME}", "--cap-add=sys_nice", "--ipc=host")
# podman knows no runtime by the name habana unless containers.conf names it, and takes a path
# (podman(1), --runtime)
PODMAN_RUNTIME = "/usr/bin/habana-container-runtime"
# shared memory of an engine without the host's: the CPU engine needs 160 MiB to serve the demo
# model (tried), and docker's default is 64 MiB; this is a limit, not a reservation
SHM_SIZE = "2g"
# an engine that needs no card: no rights beyond its user's, and no files but its mounts
CONFINED_OPTIONS = (
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    f"--shm-size={SHM_SIZE}",
)
# for jobs over the host's RDMA network cards (Gaudi2E inference manual 1.21, 3.1.1)
SCALE_OUT_CAPABILITIES = ("SYS_PTRACE", "IPC_LOCK")
SCALE_OUT_WORDS = (
    "--device=/dev:/dev",
    "-v",
    "/dev:/dev",
    *(f"--cap-add={name}" for name in SCALE_OUT_CAPABILITIES),
)
VISIBLE = "HABANA_VISIBLE_DEVICES"
# soft and hard limits by name
Limits: TypeAlias = Mapping[str, tuple[int, int]]
# open files: the value to which vLLM raises its limit ("Found ulimit of %s and failed to
# automatically increase"); locked memory: docs "Docker Installation", for jobs that register memory
# with a network card
ULIMITS: Limits = {"memlock": (-1, -1), "nofile": (65535, 65535)}


def docker_run(container: Container, name: str, *, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the argument list of ``docker run`` for this container.

    ``options`` are further options of docker, placed before the image. ``--init`` makes the
    engine's first process an ordinary one: as process 1 of the container it would ignore SIGTERM
    unless it handles it, and a shell script as entry point does not. Secrets are named only;
    docker takes their values from its environment.
    """
    words = [container.program]
    if container.modules and container.program == PODMAN:
        words.append(f"--runtime={PODMAN_RUNTIME}")
    words += ["run", "--rm", "--init", "--name", name]
    words += _card_words(container, options)
    words += _user_words(container)
    words += _network_words(container)
    for mount in container.mounts:
        words += _mounted(mount)
    words += _variable_words(container)
    if container.cpus:
        words.append(f"--cpuset-cpus={container.cpus}")
    words += options
    if container.entrypoint is not None:
        words += ["--entrypoint", container.entrypoint]
    return (*words, container.image, *container.argv)


def _card_words(container: Container, options: Sequence[str]) -> Iterator[str]:
    if container.modules and container.program != PODMAN:
        yield GAUDI_WORDS[0]
    if container.modules:
        yield from GAUDI_WORDS[1:]
    if container.scale_out:
        yield from SCALE_OUT_WORDS
    limited = any(option.startswith("--ulimit=memlock") for option in options)
    if container.scale_out and not limited:
        yield "--ulimit=memlock=-1:-1"


def _user_words(container: Container) -> Iterator[str]:
    if container.confined:
        yield from CONFINED_OPTIONS
    if not container.user:
        return
    yield f"--user={container.user}"
    if container.program == PODMAN and not container.user.startswith("0:"):
        # rootless podman gives the container's user another number on this machine otherwise
        # (podman-run(1), --userns)
        yield "--userns=keep-id"


def _network_words(container: Container) -> Iterator[str]:
    if not container.ports:
        yield "--network=host"
    address = f"{in_url(container.address)}:" if container.address else ""
    for outside, inside in container.ports:
        yield from ("-p", f"{address}{outside}:{inside}")


def _variable_words(container: Container) -> Iterator[str]:
    if container.modules and VISIBLE not in container.env:
        # the runtime sorts them anyway (docs: habana container runtime)
        yield from (
            "-e",
            f"{VISIBLE}={','.join(str(index) for index in sorted(container.indices))}",
        )
    for variable, value in container.env.items():
        yield from ("-e", f"{variable}={value}")
    for variable in container.secrets:
        yield from ("-e", variable)


def ulimits_of(container: Container) -> Limits:
    """Return a container's ulimits; {} without cards: those of its program apply."""
    return ULIMITS if container.modules else {}


def container_name(engine: str, model: str, port: int) -> str:
    """Return a container's name from its content and its port.

    No other container on this machine has this port.
    """
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", base_name(model)).strip("-._") or "model"
    return f"gaudi-launch-{engine}-{base[:50]}-{port}"


def card_indices(host: Host, modules: Sequence[int]) -> tuple[int, ...]:
    """Return hl-smi's indices of these modules, for HABANA_VISIBLE_DEVICES.

    They are in the order of the modules. An index may change when the machine boots, so it is read
    again for every launch. Raises LaunchError (MACHINE) for a card whose index is unknown.
    """
    found = []
    for module in modules:
        card = host.card(module)
        if card is None or card.index is None:
            raise LaunchError("docker.no_index", ExitCode.MACHINE, module=module)
        found.append(card.index)
    return tuple(found)


def _mounted(mount: Mount) -> tuple[str, str]:
    if ":" not in mount.source:
        return "-v", f"{mount.source}:{mount.target}" + (":ro" if mount.read_only else "")
    # -v is split at colons; --mount is a line of comma-separated values, quoted like CSV
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    if mount.read_only:
        fields.append("readonly")
    return "--mount", ",".join(csv_field(each) for each in fields)


def csv_field(value: str) -> str:
    """Return a value as one of a line of comma-separated values."""
    if any(mark in value for mark in ',"\r\n'):
        return '"' + value.replace('"', '""') + '"'
    return value
