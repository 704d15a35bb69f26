"""A container as a compose file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

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
