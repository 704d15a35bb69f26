"""A container as a Quadlet unit for podman: systemd starts it, without a daemon.

The vendor documents docker, containerd and CRI-O; that its runtime works below podman is assumed
(it wraps the OCI runtime as it does for those,
HabanaAI/gaudi-container-runtime@408d1e7:cmd/habana-container-runtime/main.go). Keys are those of
podman 4.8 (GlobalArgs is the newest); newer options are in PodmanArgs
(containers/podman@c6580b4:RELEASE_NOTES.md). Podman before 5.0 reads Notify=healthy as no.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.base.mirrors import PROXIES
from gaudi_launch.core.engines.docker_command import (
    PODMAN_RUNTIME,
    SCALE_OUT_CAPABILITIES,
    SHM_SIZE,
    csv_field,
    ulimits_of,
)
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.core.render.docker import (
    HEALTH_RETRIES,
    HEALTH_SECONDS,
    STOP_SECONDS,
    health_words,
)
from gaudi_launch.core.render.plan_container import about_cards, visible
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.systemd import command, description, environment, unit_text

_LEAST_PODMAN = "4.8"
# `CONFINED_OPTIONS` in Quadlet's form
_CONFINED = ("ReadOnly=true", "Tmpfs=/tmp", "DropCapability=ALL", "NoNewPrivileges=true")


def render(
    container: Container, name: str, head: Sequence[str], dockerfile: str | None
) -> Rendered:
    """Return NAME.container, and a Containerfile for an unpublished image.

    Raises LaunchError (USAGE) for an empty argument and a lone semicolon: Quadlet ends its line at
    the former and writes the latter unquoted, where systemd ends the command (tried with
    podman@c6580b4).
    """
    for word in ("", ";"):
        if word in container.argv:
            raise LaunchError("render.quadlet_word", ExitCode.USAGE, word=repr(word))
    # podman's name of a locally built image
    image = container.image if dockerfile is None else f"localhost/{container.image}"
    named = (f"Image={description(image)}", f"ContainerName={name}")
    sections = {
        "Unit": ("Wants=network-online.target", "After=network-online.target"),
        "Container": (*named, *_container_lines(container)),
        "Service": tuple(_service_lines(container)),
        "Install": ("WantedBy=default.target",),
    }
    files = {f"{name}.container": unit_text(head, sections)}
    notes = [*about_cards(container), message("render.quadlet", name=name, least=_LEAST_PODMAN)]
    if dockerfile is not None:
        files["Containerfile"] = dockerfile
        notes.append(message("render.containerfile", image=container.image))
    secrets = _secrets(container)
    if secrets:
        notes.append(message("render.podman_secrets", names=", ".join(secrets)))
    return Rendered(files, notes=tuple(notes))


def _secrets(container: Container) -> tuple[str, ...]:
    """Return the variables to keep as podman's secrets.

    podman gives a container the proxies of podman's environment (docs: podman-run, --http-proxy).
    """
    return tuple(name for name in container.secrets if name not in PROXIES)


def _container_lines(container: Container) -> Iterator[str]:
    """Yield the keys of [Container] after the image and the name."""
    if container.modules:
        yield f"GlobalArgs=--runtime={PODMAN_RUNTIME}"
        yield "AddCapability=SYS_NICE"
    if container.scale_out:
        yield from (f"AddCapability={name}" for name in SCALE_OUT_CAPABILITIES)
    if container.confined:
        yield from _CONFINED
    if not container.ports:
        yield "Network=host"
    for outside, inside in container.ports:
        yield f"PublishPort={container.published_at}{outside}:{inside}"
    yield "RunInit=true"
    # Quadlet copies these into its ExecStart=, where systemd would replace variables
    variables = environment({**visible(container), **container.env})
    yield from (line.replace("$", "$$") for line in variables)
    yield from (f"Secret={secret},type=env,target={secret}" for secret in _secrets(container))
    health = _health_arguments(container)
    yield from (f"PodmanArgs={command([word])}" for word in (*_arguments(container), *health))
    for program in container.entry:
        yield f"PodmanArgs={command([f'--entrypoint={program}'])}"
    if container.argv:
        yield f"Exec={command(container.argv)}"
    if health:
        yield "Notify=healthy"


def _arguments(container: Container) -> Iterator[str]:
    """Yield podman's own options; Quadlet would read a Mount= key as a list."""
    if container.modules:
        yield "--ipc=host"
    if container.confined:
        yield f"--shm-size={SHM_SIZE}"
    yield f"--stop-timeout={STOP_SECONDS}"
    for limit, (soft, hard) in ulimits_of(container).items():
        yield f"--ulimit={limit}={soft}:{hard}"
    if container.scale_out:
        yield "--device=/dev:/dev"
        yield "--volume=/dev:/dev"
    if container.cpus:
        yield f"--cpuset-cpus={container.cpus}"
    yield from (f"--mount={_mount(mount)}" for mount in container.mounts)


def _health_arguments(container: Container) -> tuple[str, ...]:
    """Return podman's options of the health check; none without a way to check."""
    health = health_words(container)
    if not health:
        return ()
    return (
        f"--health-cmd={shlex.join(health)}",
        f"--health-start-period={container.start_seconds}s",
        f"--health-retries={HEALTH_RETRIES}",
        *(f"--health-{kind}={seconds}s" for kind, seconds in HEALTH_SECONDS.items()),
    )


def _service_lines(container: Container) -> Iterator[str]:
    folders = [mount.source for mount in container.mounts if mount.fill]
    if folders:
        yield f"ExecStartPre={command(('/bin/mkdir', '-p', '--', *folders))}"
    yield f"TimeoutStartSec={container.start_seconds}"
    yield f"TimeoutStopSec={2 * STOP_SECONDS}"
    yield "Restart=on-failure"


def _mount(mount: Mount) -> str:
    """Return a bind mount as podman reads it: comma-separated values."""
    fields = ["type=bind", f"source={mount.source}", f"destination={mount.target}"]
    if mount.read_only:
        fields.append("ro=true")
    return ",".join(map(csv_field, fields))
