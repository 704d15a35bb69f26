"""A container as a compose file, or several with their gateway."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines.docker_command import (
    GAUDI_WORDS,
    SCALE_OUT_CAPABILITIES,
    SHM_SIZE,
    ulimits_of,
)
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.core.render import yaml_text
from gaudi_launch.core.render.docker import (
    HEALTH_RETRIES,
    HEALTH_SECONDS,
    STOP_SECONDS,
    health_words,
)
from gaudi_launch.core.render.gateway import GATEWAY_FOLDER, GatewayFiles, GatewaySecrets
from gaudi_launch.core.render.plan_container import about_cards, required, visible
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.text import comments

FILE = "compose.yaml"
# `CONFINED_OPTIONS` in compose's form
_CONFINED = {
    "read_only": True,
    "tmpfs": ["/tmp"],
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "shm_size": SHM_SIZE,
}


# compose mounts a secret at /run/secrets/NAME (docs.docker.com: Compose file, services, secrets)
_SECRETS = "/run/secrets"
_KEYS, _CERTIFICATE, _KEY = "gateway-keys", "gateway-certificate", "gateway-key"
_HAPROXY_START_SECONDS = 30

# keys of a service that are written only with a content
_LEFT_OUT = ("entrypoint", "command", "ulimits", "volumes", "healthcheck")


def render(
    container: Container, name: str, head: Sequence[str], dockerfile: str | None
) -> Rendered:
    """Return compose.yaml with one service.

    ``dockerfile`` builds an image that is not published.
    """
    document = {
        "name": project_name(name),
        "services": {name: service_of(container, name, dockerfile)},
    }
    return Rendered({FILE: file_text(head, document)}, notes=about_cards(container))


def file_text(head: Sequence[str], document: dict[str, Any]) -> str:
    """Return a compose file's text, after comment lines."""
    return "\n".join(comments(head)) + "\n" + yaml_text.dump(document)


def service_of(container: Container, name: str, dockerfile: str | None) -> dict[str, Any]:
    """Return the entry of a container among a compose file's services."""
    service: dict[str, Any] = {"image": _plain(container.image), "container_name": name}
    if dockerfile is not None:
        service["build"] = {"dockerfile_inline": _plain(dockerfile)}
    service["entrypoint"] = list(map(_plain, container.entry))
    service["command"] = list(map(_plain, container.argv))
    service |= _cards(container)
    service["init"] = True
    service |= _network(container)
    if container.cpus:
        service["cpuset"] = container.cpus
    if container.confined:
        service |= _CONFINED
    service["ulimits"] = {
        limit: {"soft": soft, "hard": hard} for limit, (soft, hard) in ulimits_of(container).items()
    }
    values: dict[str, str | None] = {
        **visible(container),
        **{k: _plain(v) for k, v in sorted(container.env.items())},
    }
    service["environment"] = values | {secret: _secret(secret) for secret in container.secrets}
    service["volumes"] = list(map(_volume, container.mounts))
    if container.scale_out:
        service["volumes"].append({"type": "bind", "source": "/dev", "target": "/dev"})
    words = health_words(container)
    service["healthcheck"] = health_check(words, container.start_seconds) if words else {}
    # not after a boot: the cards' numbers may have changed
    service["restart"] = "on-failure"
    service["stop_grace_period"] = f"{STOP_SECONDS}s"
    empty = {key for key in _LEFT_OUT if not service[key]}
    return {key: value for key, value in service.items() if key not in empty}


def _cards(container: Container) -> dict[str, Any]:
    """Return the keys for cards, and for the host's network cards."""
    found: dict[str, Any] = {}
    if container.modules:
        found = dict(map(_gaudi, GAUDI_WORDS))
    if container.scale_out:
        found["cap_add"] = [*found.get("cap_add", []), *SCALE_OUT_CAPABILITIES]
        found["devices"] = ["/dev:/dev"]
    return found


def _network(container: Container) -> dict[str, Any]:
    if not container.ports:
        return {"network_mode": "host"}
    at = container.published_at
    return {"ports": [f"{at}{outside}:{inside}" for outside, inside in container.ports]}


def _volume(mount: Mount) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "bind",
        "source": _plain(mount.source),
        "target": _plain(mount.target),
    }
    if mount.read_only:
        found["read_only"] = True
    # a missing model must not become an empty folder
    return {**found, "bind": {"create_host_path": mount.fill}}


def health_check(words: Sequence[str], start_seconds: int) -> dict[str, Any]:
    """Return the health check of a service by a command."""
    return {
        "test": ["CMD", *map(_plain, words)],
        "start_period": f"{start_seconds}s",
        "retries": HEALTH_RETRIES,
        **{kind: f"{seconds}s" for kind, seconds in HEALTH_SECONDS.items()},
    }


def _plain(words: str) -> str:
    """Return text that compose reads unchanged: it would replace ``$NAME``."""
    return words.replace("$", "$$")


def project_name(name: str) -> str:
    """Return a project name for compose: lower-case letters, digits, dashes."""
    small = re.sub(r"[^a-z0-9_-]", "-", name.lower()).lstrip("-_")
    return small or "gaudi-launch"


def _secret(name: str) -> str | None:
    """Return a value from the caller's environment.

    Compose stops where a required one is missing.
    """
    if name not in required((name,)):
        return None
    return f"${{{name}:?}}"


def _gaudi(word: str) -> tuple[str, Any]:
    """Return docker's option for cards in compose's form."""
    option, _, value = word.removeprefix("--").partition("=")
    key = option.replace("-", "_")
    if key == "cap_add":
        return key, [value]
    return key, value


@dataclass(frozen=True)
class ComposeEngine:
    """One engine: its service's name, its container, what it waits for.

    ``dockerfile`` builds an image that is not published.
    """

    name: str
    container: Container
    dockerfile: str | None
    after: tuple[str, ...]


def mounted(secrets: GatewaySecrets) -> GatewaySecrets:
    """Return where the gateway's container has these files of the machine."""
    found = {name: f"{_SECRETS}/{name}" for name in _secret_files(secrets)}
    return GatewaySecrets(
        keys=found.get(_KEYS, ""),
        certificate=found.get(_CERTIFICATE, ""),
        key=found.get(_KEY, ""),
    )


def render_several(
    name: str,
    head: Sequence[str],
    engines: Sequence[ComposeEngine],
    gateway: GatewayFiles,
    secrets: GatewaySecrets,
) -> Rendered:
    """Return compose.yaml, and the gateway's files in a folder next to it.

    All containers share the host's network: engines listen on the loopback address. ``secrets``
    are files of the machine.
    """
    secret_files = _secret_files(secrets)
    services: dict[str, Any] = {f"{name}-gateway": _gateway_service(name, gateway, secret_files)}
    notes: list[Message] = []
    for engine in engines:
        service = service_of(engine.container, engine.name, engine.dockerfile)
        if engine.after:
            service["depends_on"] = {
                other: {"condition": "service_healthy"} for other in engine.after
            }
        services[engine.name] = service
        notes += about_cards(engine.container)
    document: dict[str, Any] = {"name": project_name(name), "services": services}
    if secret_files:
        document["secrets"] = {each: {"file": path} for each, path in secret_files.items()}
        notes.append(message("render.stack_secrets", paths=", ".join(secret_files.values())))
    notes.append(message("render.stack_build", image=gateway.image))
    beside = {f"{GATEWAY_FOLDER}/{each}": content for each, content in gateway.files.items()}
    return Rendered({FILE: file_text(head, document), **beside}, notes=tuple(dict.fromkeys(notes)))


def _gateway_service(
    name: str, gateway: GatewayFiles, secret_files: Mapping[str, str]
) -> dict[str, Any]:
    service: dict[str, Any] = {
        "image": gateway.image,
        "container_name": f"{name}-gateway",
        "build": {"dockerfile_inline": gateway.dockerfile},
        "command": list(gateway.argv),
        "init": True,
        "network_mode": "host",
        "read_only": True,
        "tmpfs": [f"{gateway.run_folder}:mode=0700"],
        "security_opt": ["no-new-privileges:true"],
        "volumes": [
            {
                "type": "bind",
                "source": f"./{GATEWAY_FOLDER}",
                "target": gateway.folder,
                "read_only": True,
                "bind": {"create_host_path": False},
            }
        ],
    }
    if secret_files:
        service["secrets"] = list(secret_files)
    service["healthcheck"] = health_check(gateway.check, _HAPROXY_START_SECONDS)
    service["restart"] = "on-failure"
    service["stop_grace_period"] = f"{STOP_SECONDS}s"
    return service


def _secret_files(secrets: GatewaySecrets) -> dict[str, str]:
    """Return the host's paths of the keys file and TLS files, by secret."""
    found = {_KEYS: secrets.keys, _CERTIFICATE: secrets.certificate, _KEY: secrets.key}
    return {name: _plain(path) for name, path in found.items() if path}
