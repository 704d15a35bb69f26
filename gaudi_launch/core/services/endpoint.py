"""Resolve a URL or service name to a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.server_address import in_url, reached
from gaudi_launch.core.planning.engine_argument import last_value
from gaudi_launch.core.services.state import chosen, store


@dataclass(frozen=True)
class Target:
    """A server. ``url`` has no path of the API.

    ``name``, ``model`` (as the server calls it) and ``plan`` (the object of ``plan --json``) are
    known for services only.
    """

    url: str
    name: str | None = None
    model: str | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Return a short name for files and titles."""
        return self.name or (
            urlsplit(self.url).netloc.rpartition("@")[2].replace(":", "-") or "server"
        )

    @property
    def tokenizer(self) -> str | None:
        """Return the tokenizer given to the engine, None where it is the model's."""
        return option(self.plan, "--tokenizer")

    @property
    def python(self) -> str | None:
        """Return the engine's interpreter."""
        engine = self.plan.get("engine")
        found = mapping(engine).get("python")
        if isinstance(found, str) and found:
            return found
        return None


def target(text: str | None, *, running: bool = True) -> Target:
    """Return the server of a URL, or of a service as `chosen.resolve` finds it.

    A URL is ``http://host:port`` or ``host:port``, with or without /v1. ``running``: a service that
    is not ready by its record is refused. Raises LaunchError: USAGE for a value that is neither,
    FAILED for a service that is not ready.
    """
    word = text.strip() if text is not None else None
    if word is not None and ":" in word:
        return Target(_base(word))
    service = chosen.resolve(word)
    name = service.name
    if running and service.phase != "ready":
        raise LaunchError("measure.not_ready", ExitCode.FAILED, name=name, phase=service.phase)
    plan = store.read(service.folder, "plan.json") or {}
    return Target(_base(service.url), name, option(plan, "--served-model-name"), plan)


def option(plan: Mapping[str, Any], name: str) -> str | None:
    """Return the last value of an engine option in a plan's argument list, or None."""
    words = [str(word) for word in array(plan.get("argv"))]
    return last_value(words, name) or None


def _base(text: str) -> str:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if (
        parts.scheme not in ("http", "https")
        or not host
        or parts.username
        or parts.query
        or parts.fragment
    ):
        raise LaunchError("measure.bad_url", ExitCode.USAGE, found=text)
    # an address to listen on is not an address for requests
    host = in_url(reached(host))
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "") + path


def api_key() -> str | None:
    """Return the key for servers, from VLLM_API_KEY only.

    A command line is visible to every user of the machine.
    """
    return os.environ.get("VLLM_API_KEY") or None
