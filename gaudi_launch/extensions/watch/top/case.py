"""The use case of ``gaudi-launch top``: watch hosts, and act on their services."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_launch.core.base.child_log import end_of
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.host.machine import check_root
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.extensions.watch.watched_hosts import WatchedHost, sample_all, watching

if TYPE_CHECKING:
    from gaudi_launch.core.hosts.inventory import Member
    from gaudi_launch.core.services.diagnosis.explain import Explanation
    from gaudi_launch.extensions.watch.sample import HostSample

# colours of engines (ECMA-48, control sequences)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_LOG_BYTES = 256 << 10
_DRAIN_SECONDS = 30.0


@dataclass(frozen=True)
class WatchRequest:
    """Hosts to watch: ``h1,user@h2`` or an inventory, else this machine.

    ``machine`` is that of --machine; ``interval`` and ``timeout`` are seconds.
    """

    hosts: str = ""
    inventory: str = ""
    machine: str | None = None
    interval: float = 1.0
    timeout: float = 5.0


def watched(request: WatchRequest) -> list[WatchedHost]:
    """Return the hosts to watch; none is started. Raises LaunchError (USAGE)."""
    if request.hosts and request.inventory:
        raise LaunchError("watch.hosts_twice", ExitCode.USAGE)
    if request.machine is not None and (request.hosts or request.inventory):
        raise LaunchError("watch.machine_or_hosts", ExitCode.USAGE)
    if request.hosts or request.inventory:
        return [
            WatchedHost(member, None, interval=request.interval, timeout=request.timeout)
            for member in _members(request)
        ]
    check_root(request.machine)
    return [WatchedHost(None, request.machine, interval=request.interval, timeout=request.timeout)]


def _members(request: WatchRequest) -> Sequence[Member]:
    """Return the hosts of the options. Raises LaunchError (USAGE)."""
    # it imports yaml, which one machine does not need
    from gaudi_launch.core.hosts.inventory import parse_hosts, read_inventory

    if request.hosts:
        return parse_hosts(request.hosts)
    return read_inventory(Path(request.inventory))


def once(request: WatchRequest) -> list[HostSample]:
    """Return one sample of each host. Raises LaunchError (USAGE)."""
    return sample_all(watched(request))


def repeated(
    request: WatchRequest, wait: Callable[[float], None]
) -> Generator[list[HostSample], None, None]:
    """Yield the samples of all hosts at each interval."""
    hosts = watched(request)
    with watching(hosts):
        while True:
            found = [host.now() for host in hosts]
            known = [sample for sample in found if sample is not None]
            if len(known) < len(found):
                wait(0.05)
                continue
            yield known
            wait(request.interval)


def log_lines(name: str, most: int) -> list[str]:
    """Return the last lines of a service's log. Raises LaunchError."""
    from gaudi_launch.core.services import service

    path = find(name).folder / service.LOG
    try:
        content = end_of(path, _LOG_BYTES)
    except OSError as error:
        raise file_error("services.no_log", error, path) from None
    lines = deque(content.splitlines(), maxlen=most)
    return [_ANSI.sub("", line).expandtabs() for line in lines]


def explain(name: str) -> Explanation:
    """Return why a service failed, or that it did not. Raises LaunchError."""
    from gaudi_launch.core.services.why import why

    return why(name, None)


def stop_service(name: str, say: Callable[[str], None]) -> None:
    """Drain and stop a service; ``say`` gets what is waited for. Raises LaunchError."""
    from gaudi_launch.core.launch.report import Silent
    from gaudi_launch.core.launch.stop import end

    class Passing(Silent):
        def say(self, line: str) -> None:
            say(line)

    end(find(name), _DRAIN_SECONDS, Passing())
