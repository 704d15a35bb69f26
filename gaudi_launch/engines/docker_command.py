"""A Container as a docker command line.

Pure: nothing here runs docker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gaudi_launch.engines.vllm_fork.scripts_shared import base_name
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.hardware import Host
from gaudi_launch.planning.container import Container, Mount

# docs: Docker Installation;
# huggingface/text-generation-inference@db931fcf:docs/source/backends/gaudi.mdx
RUNTIME = "habana"
GAUDI_WORDS = (f"--runtime={RUNTIME}", "--cap-add=sys_nice", "--ipc=host")
# for jobs over the host's RDMA network cards (Gaudi2E inference manual 1.21, 3.1.1)
SCALE_OUT_CAPABILITIES = ("SYS_PTRACE", "IPC_LOCK")
SCALE_OUT_WORDS = (
    "--device=/dev:/dev",
    "-v",
    "/dev:/dev",
    *(f"--cap-add={name}" for name in SCALE_OUT_CAPABILITIES),
)
VISIBLE = "HABANA_VISIBLE_DEVICES"


def docker_run(
    container: Container,
    name: str,
    *,
    options: Sequence[str] = (),
    remove: bool = True,
    detached: bool = False,
) -> tuple[str, ...]:
    """Return the argument list of ``docker run`` for this container.

    ``options`` are further options of docker, placed before the image (``--restart``, which docker
    accepts only with ``remove`` False). ``--init`` makes the engine's first process an ordinary
    one: as process 1 of the container it would ignore SIGTERM unless it handles it, and a shell
    script as entry point does not. Secrets are named only; docker takes their values from its
    environment.
    """
    words = ["docker", "run"]
    if detached:
        words.append("--detach")
    if remove:
        words.append("--rm")
    words += ["--init", "--name", name]
    words += _card_words(container, options)
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
    if container.modules:
        yield from GAUDI_WORDS
    if container.scale_out:
        yield from SCALE_OUT_WORDS
    limited = any(option.startswith("--ulimit=memlock") for option in options)
    if container.scale_out and not limited:
        yield "--ulimit=memlock=-1:-1"


def _network_words(container: Container) -> Iterator[str]:
    if not container.ports:
        yield "--network=host"
    for outside, inside in container.ports:
        yield from ("-p", f"{_published(container.address)}{outside}:{inside}")


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


def _published(address: str) -> str:
    if not address:
        return ""
    return f"[{address}]:" if ":" in address else f"{address}:"


def _mounted(mount: Mount) -> tuple[str, str]:
    if ":" not in mount.source:
        return "-v", f"{mount.source}:{mount.target}" + (":ro" if mount.read_only else "")
    # -v is split at colons; --mount is a line of comma-separated values, quoted like CSV
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    if mount.read_only:
        fields.append("readonly")
    return "--mount", ",".join(_csv(field) for field in fields)


def _csv(field: str) -> str:
    if "," not in field and '"' not in field:
        return field
    return '"' + field.replace('"', '""') + '"'
