"""The gateway of several models as data: a command, files and paths.

The owner of the models makes them for the place that a target decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# of the gateway's files, next to the rendered ones
GATEWAY_FOLDER = "gateway"


@dataclass(frozen=True)
class GatewaySecrets:
    """Paths of the keys file and TLS files; "" for none."""

    keys: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True)
class GatewayPlace:
    """The place of a gateway: its address, its secrets, its folders.

    ``urls`` are the addresses of its engines by their names. ``folder`` has its files on a machine
    ("": it runs in its image), and it writes to ``run_folder``.
    """

    host: str
    port: int
    secrets: GatewaySecrets
    urls: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    run_folder: str = ""


@dataclass(frozen=True)
class GatewayFiles:
    """The command of a gateway, and the texts that it reads by path.

    In an image: its name and Dockerfile, the folders of these files and of what it writes, the
    command that exits with 0 when its port accepts, and the paths of its secrets.
    """

    argv: tuple[str, ...]
    files: Mapping[str, str]
    image: str = ""
    dockerfile: str = ""
    folder: str = ""
    run_folder: str = ""
    check: tuple[str, ...] = ()
    secrets: GatewaySecrets = field(default_factory=GatewaySecrets)
