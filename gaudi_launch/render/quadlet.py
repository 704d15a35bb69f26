"""A container as a Quadlet unit for podman: systemd starts it, without a daemon.

The vendor documents docker, containerd and CRI-O; that its runtime works below podman is assumed
(it wraps the OCI runtime as it does for those,
HabanaAI/gaudi-container-runtime@408d1e7:cmd/habana-container-runtime/main.go). Keys are those of
podman 4.8 (GlobalArgs is the newest); newer options are in PodmanArgs
(containers/podman@c6580b4:RELEASE_NOTES.md). Podman before 5.0 reads Notify=healthy as no.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gaudi_launch.engines.docker_command import SCALE_OUT_CAPABILITIES
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import message
from gaudi_launch.planning.container import Container, Mount
from gaudi_launch.render.docker import HEALTH_RETRIES, HEALTH_SECONDS, STOP_SECONDS, ULIMITS, health_words
from gaudi_launch.render.plan_container import about_cards, visible
from gaudi_launch.render.rendered import Rendered
from gaudi_launch.render.systemd_quoting import command, description, environment
from gaudi_launch.render.text import comments

RUNTIME = "/usr/bin/habana-container-runtime"
_LEAST_PODMAN = "4.8"


def render(container: Container, name: str, head: Sequence[str], dockerfile: str | None) -> Rendered:
    """Return NAME.container, and a Containerfile for an unpublished image.

    Raises LaunchError (USAGE) for an empty argument and a lone semicolon: Quadlet ends its line at
    the former and writes the latter unquoted, where systemd ends the command (tried with
    podman@c6580b4).
    """
    for word in ("", ";"):
        if word in container.argv:
            raise LaunchError("render.quadlet_word", ExitCode.USAGE, word=repr(word))
    # podman's name of a locally built image
    image = f"localhost/{container.image}" if dockerfile is not None else container.image
    lines = [*comments(head), "[Unit]", f"Description={description(head[0])}"]
    lines += ["Wants=network-online.target", "After=network-online.target", "", "[Container]"]
    lines += [f"Image={description(image)}", f"ContainerName={name}"]
    if container.modules:
        lines += [f"GlobalArgs=--runtime={RUNTIME}", "AddCapability=SYS_NICE"]
    if container.scale_out:
        lines += [f"AddCapability={name}" for name in SCALE_OUT_CAPABILITIES]
    if container.ports:
        address = f"{container.address}:" if container.address else ""
        lines += [f"PublishPort={address}{outside}:{inside}" for outside, inside in container.ports]
    else:
        lines.append("Network=host")
    lines.append("RunInit=true")
    cards = visible(container)
    # Quadlet copies these into its ExecStart=, where systemd would replace variables
    lines += [line.replace("$", "$$") for line in environment({**cards, **container.env})]
    lines += [f"Secret={secret},type=env,target={secret}" for secret in container.secrets]
    # --mount is among the arguments, because a Mount= key would be read as a list
    arguments = ["--ipc=host", f"--stop-timeout={STOP_SECONDS}"]
    arguments += [f"--ulimit={limit}={soft}:{hard}" for limit, (soft, hard) in ULIMITS.items()]
    if container.scale_out:
        arguments += ["--device=/dev:/dev", "--volume=/dev:/dev"]
    if container.cpus:
        arguments.append(f"--cpuset-cpus={container.cpus}")
    arguments += [f"--mount={_mount(mount)}" for mount in container.mounts]
    health = health_words(container)
    if health:
        arguments += [
            f"--health-cmd={shlex.join(health)}",
            f"--health-start-period={container.start_seconds}s",
            f"--health-retries={HEALTH_RETRIES}",
            *(f"--health-{kind}={seconds}s" for kind, seconds in HEALTH_SECONDS.items()),
        ]
    if container.entrypoint is not None:
        arguments.append(f"--entrypoint={container.entrypoint}")
    lines += [f"PodmanArgs={command([argument])}" for argument in arguments]
    if container.argv:
        lines.append(f"Exec={command(container.argv)}")
    if health:
        lines.append("Notify=healthy")
    folders = [mount.source for mount in container.mounts if mount.fill]
    lines += ["", "[Service]"]
    if folders:
        lines.append(f"ExecStartPre={command(('/bin/mkdir', '-p', '--', *folders))}")
    lines += [f"TimeoutStartSec={container.start_seconds}", f"TimeoutStopSec={2 * STOP_SECONDS}"]
    lines += ["Restart=on-failure", "", "[Install]", "WantedBy=default.target"]
    files = {f"{name}.container": "\n".join(lines) + "\n"}
    notes = [*about_cards(container), message("render.quadlet", name=name, least=_LEAST_PODMAN)]
    if dockerfile is not None:
        files["Containerfile"] = dockerfile
        notes.append(message("render.containerfile", image=container.image))
    if container.secrets:
        notes.append(message("render.podman_secrets", names=", ".join(container.secrets)))
    return Rendered(files, notes=tuple(notes))


def _mount(mount: Mount) -> str:
    """Return a bind mount as podman reads it: comma-separated values."""
    fields = ["type=bind", f"source={mount.source}", f"destination={mount.target}"]
    return ",".join(_field(field) for field in [*fields, *(["ro=true"] if mount.read_only else [])])


def _field(words: str) -> str:
    return '"' + words.replace('"', '""') + '"' if any(mark in words for mark in ',"\r\n') else words
