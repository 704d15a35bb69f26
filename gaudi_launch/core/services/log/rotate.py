"""Limit the size of a log that another process writes: copy it, then truncate it.

The engine's log is opened for appending, so after the cut it continues at the file's new beginning.
Lines written in the instant between copy and cut are lost. The earlier part has at most twice the
limit: the last lines, and those that are written while these are copied.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

_log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
_PIECE = 1 << 20


def earlier(log: Path) -> Path:
    """Return the path of the part before the last cut."""
    return log.with_name(f"{log.name}.1")


def put_aside(log: Path) -> Path:
    """Keep the log of the last run as its earlier part; return the log, now empty.

    The log exists at every moment, where the file system has hard links: whoever reads it meanwhile
    finds the old lines or none. A failure leaves the log as it is.
    """
    empty = log.with_name(f".{log.name}.new")
    try:
        if not log.stat().st_size:
            return log
        empty.touch(mode=0o600)
        earlier(log).unlink(missing_ok=True)
        _second_name(log, earlier(log))
        empty.replace(log)
    except OSError:
        _log.debug("the earlier log %s is not put aside", log, exc_info=True)
        with contextlib.suppress(OSError):
            empty.unlink(missing_ok=True)
    return log


def _second_name(log: Path, name: Path) -> None:
    """Link the log to this name; rename it on a file system without hard links."""
    try:
        os.link(log, name)
    except OSError:
        _log.debug("no hard links for %s, so it is renamed", log, exc_info=True)
        log.replace(name)


def rotate(log: Path, most_bytes: int = MOST_BYTES) -> bool:
    """Truncate the log when it is larger than this; return True if it was.

    One earlier part is kept. On a full disk the old lines are discarded: a service must not fail
    because of its log.
    """
    try:
        size = log.stat().st_size
        if size <= most_bytes:
            return False
        part = earlier(log).with_name(f".{log.name}.part")
        try:
            with log.open("rb") as source, part.open("wb") as target:
                os.fchmod(target.fileno(), 0o600)
                source.seek(max(0, size - most_bytes))
                while target.tell() < 2 * most_bytes and (block := source.read(_PIECE)):
                    target.write(block[: 2 * most_bytes - target.tell()])
            part.replace(earlier(log))
        except OSError:
            _log.debug("the earlier part of %s is not kept", log, exc_info=True)
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        os.truncate(log, 0)
    except OSError:
        _log.debug("%s is not cut", log, exc_info=True)
        return False
    return True
