"""A stack as a compose file: a service for each engine, and the gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.render.compose import FILE, file_text, health_check, project_name, service_of
from gaudi_launch.core.render.docker import STOP_SECONDS
from gaudi_launch.core.render.plan_container import about_cards
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.extensions.stack.gateway.gateway_image import (
    FOLDER,
    IMAGE,
    RUN_FOLDER,
    GatewaySecrets,
    RenderedGateway,
    dockerfile,
    health_words,
)
from gaudi_launch.extensions.stack.gateway.gateway_settings import GatewaySettings

GATEWAY_FOLDER = "gateway"
# compose mounts a secret at /run/secrets/NAME (docs.docker.com: Compose file, services, secrets)
_SECRETS = "/run/secrets"
_KEYS, _CERTIFICATE, _KEY = "gateway-keys", "gateway-certificate", "gateway-key"
_HAPROXY_START_SECONDS = 30


@dataclass(frozen=True)
class ComposeEngine:
    """One engine: its service's name, its container, what it waits for.

    ``dockerfile`` builds an image that is not published.
    """

    name: str
    container: Container
    dockerfile: str | None
    after: tuple[str, ...]


def secrets_of(settings: GatewaySettings) -> GatewaySecrets:
    """Return where the gateway's container has its keys and TLS files."""
    found = {name: f"{_SECRETS}/{name}" for name in _secret_files(settings)}
    return GatewaySecrets(
        keys=found.get(_KEYS, ""),
        certificate=found.get(_CERTIFICATE, ""),
        key=found.get(_KEY, ""),
    )


def render(
    name: str,
    head: Sequence[str],
    engines: Sequence[ComposeEngine],
    gateway: RenderedGateway,
    settings: GatewaySettings,
) -> Rendered:
    """Return compose.yaml, and the gateway's files in a folder next to it.

    All containers share the host's network: engines listen on the loopback address.
    ``name`` is the stack's.
    """
    services: dict[str, Any] = {f"{name}-gateway": _gateway_service(name, gateway, settings)}
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
    files = _secret_files(settings)
    if files:
        document["secrets"] = {each: {"file": path} for each, path in files.items()}
        notes.append(message("render.stack_secrets", paths=", ".join(files.values())))
    notes.append(message("render.stack_build", image=IMAGE))
    beside = {f"{GATEWAY_FOLDER}/{each}": content for each, content in gateway.files.items()}
    return Rendered({FILE: file_text(head, document), **beside}, notes=tuple(dict.fromkeys(notes)))


def _gateway_service(
    name: str, gateway: RenderedGateway, settings: GatewaySettings
) -> dict[str, Any]:
    service: dict[str, Any] = {
        "image": IMAGE,
        "container_name": f"{name}-gateway",
        "build": {"dockerfile_inline": dockerfile()},
        "command": list(gateway.argv),
        "init": True,
        "network_mode": "host",
        "read_only": True,
        "tmpfs": [f"{RUN_FOLDER}:mode=0700"],
        "security_opt": ["no-new-privileges:true"],
        "volumes": [
            {
                "type": "bind",
                "source": f"./{GATEWAY_FOLDER}",
                "target": FOLDER,
                "read_only": True,
                "bind": {"create_host_path": False},
            }
        ],
    }
    secrets = list(_secret_files(settings))
    if secrets:
        service["secrets"] = secrets
    service["healthcheck"] = health_check(health_words(settings.port), _HAPROXY_START_SECONDS)
    service["restart"] = "on-failure"
    service["stop_grace_period"] = f"{STOP_SECONDS}s"
    return service


def _secret_files(settings: GatewaySettings) -> dict[str, str]:
    """Return the host's paths of the keys file and TLS files, by secret."""
    found: dict[str, str] = {}
    if settings.keys_file is not None:
        found[_KEYS] = str(settings.keys_file)
    if settings.tls is not None:
        found[_CERTIFICATE] = str(settings.tls.certificate)
        found[_KEY] = str(settings.tls.key)
    return {name: path.replace("$", "$$") for name, path in found.items()}
