"""The loop of the live view: newest samples, keys, and the screen."""

from __future__ import annotations

import sys
import time
from functools import partial

from gaudi_launch.cli.colour import is_coloured
from gaudi_launch.cli.streams import shows
from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.extensions.watch.sample import HostSample
from gaudi_launch.extensions.watch.top import case as top
from gaudi_launch.extensions.watch.top.case import WatchRequest
from gaudi_launch.extensions.watch.top.columns import BAD, CHOSEN, DIM, GOOD, TITLE, WARN, Look
from gaudi_launch.extensions.watch.top.live_screen import LiveScreen, opened
from gaudi_launch.extensions.watch.top.state import TopState, press
from gaudi_launch.extensions.watch.top.view import lines, painted
from gaudi_launch.extensions.watch.watched_hosts import WatchedHost, watching

_CODES = {DIM: "2", GOOD: "32", WARN: "33", BAD: "1;31", TITLE: "1", CHOSEN: "7"}
# without colours what matters is still marked
_MONOCHROME = {TITLE: "1", CHOSEN: "7", BAD: "1"}
_LOG_LINES = 2000
# the first samples come within this time, or the screen says that it reads
_FIRST_TURN_SECONDS = 0.05
_KEY_TURN_SECONDS = 0.25


class ServiceActions:
    """The actions of the keys on services of this machine."""

    def __init__(self, state: TopState) -> None:
        self._state = state

    def log(self, service: str) -> list[str]:
        try:
            return top.log_lines(service, _LOG_LINES)
        except LaunchError as error:
            return [str(error)]

    def why(self, service: str) -> list[str]:
        from gaudi_launch.commands.services.why.view import lines_of

        try:
            return lines_of(top.explain(service))
        except LaunchError as error:
            return [str(error)]

    def stop(self, service: str) -> None:
        """Stop it in the background: the view continues and shows how it ends."""
        in_background(partial(self._stop, service))

    def _stop(self, service: str) -> None:
        try:
            top.stop_service(service, self._say)
        except LaunchError as error:
            self._say(str(error))
        else:
            self._say(text("watch.stopped", name=service))

    def _say(self, line: str) -> None:
        self._state.message = line


def run(request: WatchRequest) -> None:
    """Show the live view until q or Ctrl-C. Raises LaunchError (USAGE)."""
    hosts = top.watched(request)
    state = TopState(local=not request.hosts and not request.inventory)
    with watching(hosts), opened() as screen:
        _loop(screen, state, hosts, request.interval)


def _loop(screen: LiveScreen, state: TopState, hosts: list[WatchedHost], interval: float) -> None:
    actions = ServiceActions(state)
    look = Look(state.trails, ascii=not shows(sys.stdout, "▁▂█"))
    codes = _CODES if is_coloured(sys.stdout) else _MONOCHROME
    next_update = 0.0
    while True:
        if time.monotonic() >= next_update:
            complete = _update(state, hosts)
            next_update = time.monotonic() + (interval if complete else _FIRST_TURN_SECONDS)
            _draw(screen, state, look, codes)
        wait = min(_KEY_TURN_SECONDS, max(0.0, next_update - time.monotonic()))
        keys = screen.keys(wait)
        for key in keys:
            if not press(state, key, actions):
                return
        if keys or screen.resized():
            _draw(screen, state, look, codes)


def _update(state: TopState, hosts: list[WatchedHost]) -> bool:
    """Take the newest samples; return whether every host has one."""
    found: list[HostSample] = [
        sample for sample in (host.now() for host in hosts) if sample is not None
    ]
    complete = len(found) == len(hosts)
    if found and (complete or not state.hosts):
        state.update(found)
    overlay = state.overlay
    if overlay is not None and overlay.again is not None:
        overlay.lines = overlay.again()
    return complete


def _draw(screen: LiveScreen, state: TopState, look: Look, codes: dict[str, str]) -> None:
    width, height = screen.size()
    # the last column of the last line would scroll some terminals
    shown = lines(state, width - 1, height, look)
    screen.show([painted(line, lambda style: codes.get(style, "")) for line in shown])
