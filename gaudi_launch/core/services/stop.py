"""Stop a service: drain, SIGTERM, SIGKILL, and check the result."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.host.machine import load
from gaudi_launch.core.services.containers import remover
from gaudi_launch.core.services.metrics import requests_of
from gaudi_launch.core.services.process.sockets import remove_dead
from gaudi_launch.core.services.run_record import RunRecord
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.chosen import find
from gaudi_launch.core.services.state.orphans import Orphan, end, orphans
from gaudi_launch.core.services.state.registry import ServiceRecord, hold, runs

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
# the launcher gives its engine 20 s, the remaining processes 5 s, and then kills; this timeout must
# be longer
_LAUNCHER_SECONDS = 45.0
_SIGN_SECONDS = 5.0
_LET_GO_SECONDS = (0.0, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Stopped:
    """The result of a stop.

    ``left`` requests (of an engine that reports none: connections) were still running when the
    drain's time was over. ``orphans`` are processes that its launcher had not ended, of which
    ``deaf`` still run. ``busy`` are module IDs of its cards that another process still uses,
    ``run`` is the record of simulated cards; `core.launch.stop` adds both.
    """

    service: ServiceRecord
    was_alive: bool
    left: int
    orphans: tuple[Orphan, ...]
    deaf: tuple[Orphan, ...] = ()
    busy: tuple[int, ...] = ()
    run: RunRecord | None = None

    @property
    def was_running(self) -> bool:
        """Report whether any process of it was found."""
        return self.was_alive or bool(self.orphans)


def stop(
    service: ServiceRecord, drain_seconds: float, say: Callable[[str, float], None]
) -> Stopped:
    """Stop a service and all its processes.

    ``say`` gets what is waited for (``drain`` with the requests running, ``end`` with seconds).
    Raises LaunchError when its launcher may not be signalled or does not end.
    """
    left = 0
    if service.alive and drain_seconds > 0:
        left = _drain(service, drain_seconds, say)
    if service.alive:
        _end_launcher(service, say)
    # its launcher did not end in order, now or earlier
    lost = find(service.name).phase == "lost"
    if service.alive and lost:
        _note_end(service)
    # a launcher that was killed earlier, or had to be killed now, may have left processes
    found = tuple(orphans(service.folder))
    deaf = tuple(end(found))
    if found or lost:
        job = store.read(service.folder, "job.json") or {}
        container, command = str(job.get("container", "")), job.get("command")
        if container and isinstance(command, dict):
            remover(container, [str(word) for word in command.get("argv", ())])(None)
    tidy(service.folder, patient=bool(found or lost))
    return Stopped(service, service.alive, left, found, deaf)


def still_busy(modules: Sequence[int]) -> list[int]:
    """Return those of these cards that a process still uses.

    The driver takes a moment to release them.
    """
    if not modules:
        return []
    busy: list[int] = []
    for pause in _LET_GO_SECONDS:
        time.sleep(pause)
        host = load(None)
        busy = [
            module for module in modules if (card := host.card(module)) is not None and card.busy
        ]
        if not busy:
            break
    return busy


def tidy(folder: Path, patient: bool = True) -> None:
    """Remove what a service's engine left when its launcher was killed.

    ``patient``: an engine that ends without its launcher takes a moment to release its files.
    """
    began = (store.read(folder, "state.json") or {}).get("engine_began")
    environment = (store.read(folder, "job.json") or {}).get("environment")
    if not isinstance(began, int | float):
        return
    for pause in _LET_GO_SECONDS if patient else (0.0,):
        time.sleep(pause)
        if remove_dead(began, mapping(environment)):
            return


def _drain(service: ServiceRecord, seconds: float, say: Callable[[str, float], None]) -> int:
    """Wait until no request runs; return how many still do after the time.

    Of an engine that reports no requests, the open connections count instead.
    """
    deadline = time.monotonic() + seconds
    while service.phase == "ready":
        load = requests_of(service.url)
        if load is not None:
            what, busy = "drain", load.running + load.waiting
        else:
            what, busy = "connections", _connections(service.url)
        if not busy or time.monotonic() >= deadline or not runs(service.folder, service.launcher):
            return busy
        say(what, busy)
        time.sleep(_POLL_SECONDS * 5)
    return 0


def _connections(url: str) -> int:
    """Return the connections that clients have to the port of this address."""
    import psutil

    port = urlsplit(url).port
    with best_effort(_log, "count the connections to the engine", OSError, psutil.Error):
        found = psutil.net_connections(kind="tcp")
        ours = [each for each in found if each.laddr and each.laddr.port == port]
        return sum(each.status == psutil.CONN_ESTABLISHED for each in ours)
    # unknown is not idle
    return 1


def _note_end(service: ServiceRecord) -> None:
    """Record that it was stopped, where its launcher was killed before it could."""
    with best_effort(_log, "record that the service was stopped", LaunchError), hold(service.name):
        news = {"phase": "stopped", "outcome": "stopped", "ended": time.time()}
        store.write(service.folder, "state.json", {**find(service.name).state, **news}, last=True)


def _end_launcher(service: ServiceRecord, say: Callable[[str, float], None]) -> None:
    begin = time.monotonic()
    # one that is just being started has not recorded its pid yet
    while (launcher := find(service.name).launcher) is None:
        if time.monotonic() - begin > _SIGN_SECONDS:
            raise LaunchError(
                "services.no_launcher", ExitCode.FAILED, name=service.name, path=str(service.folder)
            )
        time.sleep(_POLL_SECONDS)
    asked = False
    killed = False
    while runs(service.folder, launcher):
        waited = time.monotonic() - begin
        try:
            if not asked:
                asked = launcher.send(signal.SIGTERM)
            elif waited > _LAUNCHER_SECONDS and not killed:
                killed = launcher.send(signal.SIGKILL)
        except PermissionError:
            raise LaunchError(
                "services.not_ours", ExitCode.FAILED, name=service.name, pid=launcher.pid
            ) from None
        if waited > _LAUNCHER_SECONDS + 10:
            raise LaunchError(
                "services.not_ending", ExitCode.FAILED, name=service.name, pid=launcher.pid
            )
        say("end", waited)
        time.sleep(_POLL_SECONDS)
