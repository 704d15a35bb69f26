"""The record of a cluster, written when it is started, to inspect and end it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.paths import write_whole
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.base.server_address import join
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.parts import Cluster

FILE_NAME = "cluster.json"


@dataclass(frozen=True)
class Place:
    """A host and its address for the others."""

    member: Member
    address: str


@dataclass(frozen=True)
class Part:
    """One engine: its hosts, the head first, and its address."""

    places: tuple[Place, ...]
    url: str

    @property
    def head(self) -> Place:
        return self.places[0]


@dataclass(frozen=True)
class RunningCluster:
    """A cluster that was started. ``cards`` are those of one engine."""

    name: str
    ray: bool
    ray_port: int
    cards: int
    parts: tuple[Part, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(place.member for part in self.parts for place in part.places)

    def ray_address(self, part: Part) -> str:
        return join(part.head.address, self.ray_port)


def running_of(cluster: Cluster) -> RunningCluster:
    """Return the record of a planned cluster."""
    parts = tuple(
        Part(tuple(Place(node.member, node.address) for node in engine.nodes), engine.url)
        for engine in cluster.engines
    )
    return RunningCluster(
        cluster.name, cluster.layout.ray, cluster.ray_port, cluster.layout.world, parts
    )


def kept_in(name: str, member: Member) -> str:
    """Return a host's folder for what was started on it.

    Hosts that share a home folder must not share this one.
    """
    return f"{name}/{member.name}"


def remember(folder: Path, running: RunningCluster) -> list[Path]:
    """Write the record and begin each engine's log here; return the logs.

    Raises LaunchError (FAILED).
    """
    logs = [folder / ("service.log" if len(running.parts) == 1 else f"service-{number}.log")
            for number in range(len(running.parts))]  # fmt: skip
    try:
        for log in logs:
            log.write_bytes(b"")
        document = {"cluster": codec.write(running), "schema": 1}
        write_whole(folder / FILE_NAME, json.dumps(document, ensure_ascii=False, indent=1))
        return logs
    except OSError as error:
        raise file_error("serve.state_folder", error, folder) from None


def remembered(folder: Path) -> RunningCluster:
    """Return the record.

    Raises LaunchError (USAGE) when there is none, or the file is not a record.
    """
    try:
        running = codec.read(RunningCluster, mapping(read_json(folder / FILE_NAME)).get("cluster"))
    except FileNotFoundError:
        raise LaunchError("cluster.unknown", ExitCode.USAGE, name=folder.name) from None
    except (OSError, ValueError) as error:
        raise LaunchError(
            "cluster.bad_state", ExitCode.FAILED, path=str(folder / FILE_NAME), why=str(error)
        ) from None
    if not running.parts or not all(part.places for part in running.parts):
        raise LaunchError(
            "cluster.bad_state", ExitCode.FAILED, path=str(folder / FILE_NAME), why="-"
        )
    return running
