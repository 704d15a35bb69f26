"""Input of a gateway: models, replicas, address, TLS, keys and limits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.server_address import join, reached

Balance = Literal["least-load", "prefix"]
"""``least-load``: the replica with the fewest requests. ``prefix``: conversations stay on a
replica."""

# names are keys of HAProxy's map files: one token without control characters, and no comment
_NAME = re.compile(r"(?!#)[!-~]+")
_URL = re.compile(r"http://(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
# what a request needs in addition to its body: the head, and HAProxy's reserve for rewriting it
_HEAD_BYTES = 16 << 10
# requests up to this size have small buffers: HAProxy copies a complete buffer for each request
SMALL_BYTES = 112 << 10


@dataclass(frozen=True)
class Backend:
    """One model and the engines that serve it.

    ``replicas`` has the URL of each engine (``http://host:port``) with the name of its service on
    this machine, whose state the gateway shows; "" for one without.

    Requests are forwarded unchanged, so each engine must answer under ``model`` and every alias
    (vLLM: ``--served-model-name MODEL ALIAS ...``).
    """

    model: str
    replicas: Mapping[str, str]
    aliases: tuple[str, ...] = ()
    balance: Balance = "least-load"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that requests may use, the model's first."""
        return (self.model, *self.aliases)


@dataclass(frozen=True)
class Tls:
    """PEM files of the certificate (with its chain) and of its private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class RequestLimits:
    """Limits of one user's requests; None: no limit."""

    requests_per_minute: int | None = None
    concurrent: int | None = None


@dataclass(frozen=True)
class GatewaySettings:
    """Address, access and limits of a gateway.

    ``keys_file`` has a line ``USER KEY`` for each user; None: no key is needed. ``body_mib`` is the
    largest request; each running one above 112 KiB takes about twice this memory. An engine that
    sends nothing for ``timeout_seconds`` is given up. ``connections``: most clients at once, and
    ``large_connections`` of them with requests above 112 KiB; one address may have half of them.
    For requests from ``trusted_proxies`` (addresses or networks) X-Forwarded-For names the address.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tls: Tls | None = None
    keys_file: Path | None = None
    limits: RequestLimits = RequestLimits()
    user_limits: Mapping[str, RequestLimits] = field(default_factory=dict)
    body_mib: int = 8
    timeout_seconds: int = 1800
    connections: int = 2000
    trusted_proxies: tuple[str, ...] = ()
    large_connections: int = 200
    threads: int = 4

    @property
    def small_buffer_bytes(self) -> int:
        """Return the size of a buffer in which a small request fits."""
        return SMALL_BYTES + _HEAD_BYTES

    @property
    def large_buffer_bytes(self) -> int:
        """Return the size of a buffer in which the largest request fits, with any head.

        One that fills it is too large: no more of a body of unknown length is forwarded.
        """
        return (self.body_mib << 20) + self.small_buffer_bytes + _HEAD_BYTES

    @property
    def url(self) -> str:
        """Return the base URL for clients on this machine."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{join(reached(self.host), self.port)}"


def check_backends(backends: Sequence[Backend]) -> None:
    """Raise LaunchError (USAGE) for names and addresses that cannot be routed to."""
    if not backends:
        raise LaunchError("gateway.no_models", ExitCode.USAGE)
    names = [name for backend in backends for name in backend.names]
    for name in names:
        if not _NAME.fullmatch(name):
            raise LaunchError("gateway.bad_model", ExitCode.USAGE, found=name)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise LaunchError("gateway.twice", ExitCode.USAGE, name=twice[0])
    for backend in backends:
        if not backend.replicas:
            raise LaunchError("gateway.no_replica", ExitCode.USAGE, model=backend.model)
        for url in backend.replicas:
            if not _URL.fullmatch(url):
                raise LaunchError(
                    "gateway.bad_replica", ExitCode.USAGE, model=backend.model, found=url
                )
