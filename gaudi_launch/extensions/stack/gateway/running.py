"""A running gateway, as its HAProxy processes report it.

The sockets are those of the masters.

Commands: HAProxy 2.8 management guide, "master CLI".
"""

from __future__ import annotations

import csv
import logging
import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.identity import identity_in
from gaudi_launch.extensions.stack.gateway.haproxy_config import MASTERS
from gaudi_launch.extensions.stack.gateway.runtime.gateway_process import asked

_log = logging.getLogger(__name__)

FOLDER = "gateway"


@dataclass(frozen=True)
class RoutedEngine:
    """An engine as HAProxy routes to it: its check's state, and requests that run.

    ``status`` is HAProxy's, such as UP, DOWN or MAINT; "" for one that gets no requests any more.
    """

    status: str
    requests: int


def digests(name: str) -> tuple[str, ...]:
    """Return the digest of what each HAProxy serves with, "" where it shows none."""
    found = []
    for master in _masters(name):
        lines = _ask(master, "@1 show info").splitlines()
        shown = (line.partition(": ")[2] for line in lines if line.startswith("description: "))
        found.append(next(shown, ""))
    return tuple(found)


def routed_engines(name: str) -> dict[str, RoutedEngine]:
    """Return the engines of a gateway, by the names of their services.

    Requests are those of all workers: one with older settings finishes those that it has.
    """
    states: dict[str, str] = {}
    requests: Counter[str] = Counter()
    for master in _masters(name):
        for row in _servers(master, "@1"):
            states[row["svname"]] = row["status"]
        for worker in _workers(master):
            for row in _servers(master, f"@!{worker}"):
                requests[row["svname"]] += int(row["scur"])
    return {
        each: RoutedEngine(states.get(each, ""), requests[each]) for each in {**states, **requests}
    }


def set_routed(name: str, services: Collection[str], *, routed: bool) -> None:
    """Give these services new requests, or none.

    Until the next settings of the gateway, or its next start.
    """
    state = "ready" if routed else "maint"
    for master in _masters(name):
        for row in _servers(master, "@1"):
            if row["svname"] in services:
                _ask(master, f"@1 set server {row['pxname']}/{row['svname']} state {state}")


def _masters(name: str) -> list[Path]:
    return [store.service_dir(name) / FOLDER / master for master in MASTERS]


def _workers(master: Path) -> Iterator[str]:
    """Yield the pid of each worker, also of those that only finish requests."""
    for line in _ask(master, "show proc").splitlines():
        words = line.split()
        if words[1:2] == ["worker"]:
            yield words[0]


def _servers(master: Path, worker: str) -> Iterator[dict[str, str]]:
    """Yield a worker's rows of the engines of all models."""
    page = _ask(master, f"{worker} show stat -1 4 -1").removeprefix("# ")
    for row in csv.DictReader(page.splitlines()):
        if row.get("pxname", "").startswith("model"):
            yield row


def _ask(master: Path, command: str) -> str:
    """Return the answer to a command; "" where no HAProxy runs, or none answers."""
    state = store.read(master.parent.parent, "state.json") or {}
    process = identity_in(state, "engine_process")
    if process is None or not process.alive:
        return ""
    try:
        # a socket's path has at most 107 bytes
        folder = os.open(master.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        _log.debug("%s does not answer %r: %s", master, command, error)
        return ""
    try:
        return asked(f"/proc/self/fd/{folder}/{master.name}", command)
    finally:
        os.close(folder)
