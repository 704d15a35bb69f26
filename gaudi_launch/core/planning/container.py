"""A container as a record, for docker, compose, Quadlet and Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# an image's name, by distribution/reference@v0.6.0:reference.go: an optional registry, a path in
# lower case, a tag, a digest
IMAGE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?"
    r"[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)


# programs that run a container
PODMAN = "podman"
PROGRAMS = ("docker", PODMAN)
# the folder of an image that keeps there what it fetches (huggingface/text-generation-inference,
# Dockerfile_gaudi: HF_HOME)
IMAGE_DATA = "/data"


@dataclass(frozen=True)
class Mount:
    """A folder of the host inside the container.

    ``fill`` marks one that the engine fills and that may be created.
    """

    source: str
    target: str
    read_only: bool = False
    fill: bool = False


@dataclass(frozen=True)
class Container:
    """One engine in one container.

    ``argv`` are the arguments after the image (its entry point is kept unless ``entrypoint`` names
    another), ``env`` the container's variables, ``secrets`` the names of variables taken from the
    caller's environment: their values are never written. ``ports`` are (host, container) pairs,
    none for the host's network; ``address`` is the host's address that they are published on ("":
    all of them). ``modules`` are the cards by module ID, ``indices`` the same cards by hl-smi's
    index, which is what the container runtime reads from HABANA_VISIBLE_DEVICES. ``health`` is the
    path that answers 200 when the engine is ready, ``url`` its address inside the container,
    ``start_seconds`` the longest first warm-up, ``name`` its name where docker runs it directly.
    ``scale_out``: the cards communicate over the host's network cards. ``program`` runs it: docker
    or podman. ``confined``: it has no rights beyond its user's, and writes only to its mounts and
    to /tmp. ``user`` is that user as ``UID:GID`` ("": the image's own).
    """

    image: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    entrypoint: str | None = None
    mounts: tuple[Mount, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    address: str = ""
    modules: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()
    cpus: str = ""
    health: str = "/health"
    start_seconds: int = 3600
    name: str = ""
    url: str = ""
    scale_out: bool = False
    program: str = "docker"
    confined: bool = False
    user: str = ""

    @property
    def entry(self) -> tuple[str, ...]:
        """Return the program of the container; () for the image's own."""
        if self.entrypoint is None:
            return ()
        return (self.entrypoint,)

    @property
    def published_at(self) -> str:
        """Return the beginning of a published port: ``ADDRESS:``, "" for all addresses."""
        if not self.address:
            return ""
        return f"{self.address}:"
