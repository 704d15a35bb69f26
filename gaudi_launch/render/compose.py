"""A container as a compose file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gaudi_launch.engines.docker_command import (
    GAUDI_WORDS,
    SCALE_OUT_CAPABILITIES,
    SHM_SIZE,
    ulimits_of,
)
from gaudi_launch.planning.container import Container
from gaudi_launch.render import yaml_text
from gaudi_launch.render.docker import (
    HEALTH_RETRIES,
    HEALTH_SECONDS,
    STOP_SECONDS,
    health_words,
)
from gaudi_launch.render.plan_container import about_cards, required, visible
from gaudi_launch.render.rendered import Rendered
from gaudi_launch.render.text import comments

FILE = "compose.yaml"
# `CONFINED_OPTIONS` in compose's form
_CONFINED = {
    "read_only": True,
    "tmpfs": ["/tmp"],
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "shm_size": SHM_SIZE,
}


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
    if container.entrypoint is not None:
        service["entrypoint"] = [_plain(container.entrypoint)]
    service["command"] = [_plain(word) for word in container.argv]
    if container.modules:
        service |= dict(_gaudi(word) for word in GAUDI_WORDS)
    if container.scale_out:
        service["cap_add"] = [*service.get("cap_add", []), *SCALE_OUT_CAPABILITIES]
        service["devices"] = ["/dev:/dev"]
    service["init"] = True
    if container.ports:
        address = f"{container.address}:" if container.address else ""
        service["ports"] = [f"{address}{outside}:{inside}" for outside, inside in container.ports]
    else:
        service["network_mode"] = "host"
    if container.cpus:
        service["cpuset"] = container.cpus
    if container.confined:
        service |= _CONFINED
    limits = {
        limit: {"soft": soft, "hard": hard} for limit, (soft, hard) in ulimits_of(container).items()
    }
    if limits:
        service["ulimits"] = limits
    cards = visible(container)
    values: dict[str, str | None] = {
        **cards,
        **{k: _plain(v) for k, v in sorted(container.env.items())},
    }
    service["environment"] = values | {secret: _secret(secret) for secret in container.secrets}
    service["volumes"] = [
        {
            "type": "bind",
            "source": _plain(mount.source),
            "target": _plain(mount.target),
            **({"read_only": True} if mount.read_only else {}),
            # a missing model must not become an empty folder
            "bind": {"create_host_path": mount.fill},
        }
        for mount in container.mounts
    ]
    if container.scale_out:
        service["volumes"].append({"type": "bind", "source": "/dev", "target": "/dev"})
    health = health_words(container)
    if health:
        service["healthcheck"] = {
            "test": ["CMD", *(_plain(word) for word in health)],
            "start_period": f"{container.start_seconds}s",
            "retries": HEALTH_RETRIES,
            **{kind: f"{seconds}s" for kind, seconds in HEALTH_SECONDS.items()},
        }
    # not after a boot: the cards' numbers may have changed
    service["restart"] = "on-failure"
    service["stop_grace_period"] = f"{STOP_SECONDS}s"
    return {key: value for key, value in service.items() if value != []}


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
    return key, [value] if key == "cap_add" else value
