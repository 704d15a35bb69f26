"""The logs of several services, each line with the name of its service."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from gaudi_launch.cli.streams import is_utf
from gaudi_launch.core.services.log.tail import Tail
from gaudi_launch.core.services.service import LOG
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.registry import runs

_POLL_SECONDS = 0.2


def show_logs(names: Sequence[str], *, follow: bool, last: int | None, as_json: bool) -> None:
    """Print the logs of these services, as they grow with ``follow``."""
    width = max(map(len, names), default=0)
    logs = [_NamedLog(name, last, width, as_json=as_json) for name in names]
    try:
        alive = True
        while alive:
            # checked before the last read, so that the last lines are not missed
            alive = follow and any(runs(store.service_dir(name)) for name in names)
            for log in logs:
                log.show()
            sys.stdout.flush()
            if alive:
                time.sleep(_POLL_SECONDS)
    finally:
        for log in logs:
            log.close()


class _NamedLog:
    """The log of one service."""

    def __init__(self, name: str, last: int | None, width: int, *, as_json: bool) -> None:
        self._name = name
        self._width = width
        self._as_json = as_json
        self._tail = Tail(store.service_dir(name) / LOG, last)
        self._rest = b""

    def show(self) -> None:
        """Print the lines that were completed since the last call."""
        *complete, self._rest = (self._rest + self._tail.read()).split(b"\n")
        for line in complete:
            self._print(line)

    def close(self) -> None:
        """Print a last line that has no end."""
        if self._rest:
            self._print(self._rest)
        self._tail.close()

    def _print(self, content: bytes) -> None:
        line = content.decode("utf-8", "replace").rstrip("\r")
        if not self._as_json:
            print(f"{self._name:{self._width}} | {line}")
            return
        document = {"schema": 1, "service": self._name, "line": line}
        print(json.dumps(document, ensure_ascii=not is_utf(sys.stdout)))
