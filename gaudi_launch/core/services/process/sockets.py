"""Sockets that an engine left in the temporary folder: vLLM does not remove them.

vLLM names them by a UUID, V0 with a suffix (vllm: utils/network_utils.py get_open_zmq_ipc_path; the
fork's engine/multiprocessing IPC_*_EXT); two remain after each stop, more after each kill (seen
with vLLM's CPU build).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

_log = logging.getLogger(__name__)

_NAME = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:_(?:input|output|health|data)_socket)?",
    re.ASCII,
)


def remove_dead(since: float, environment: Mapping[str, str]) -> bool:
    """Remove an engine's sockets of this user that no process uses any more.

    They are those made since a time (seconds of `time.time`). Returns False when some are still in
    use, by another engine or by one that is ending. ``environment`` is the engine's, which may name
    another folder for them.
    """
    folder = (
        environment.get("VLLM_RPC_BASE_PATH") or environment.get("TMPDIR") or tempfile.gettempdir()
    )
    made = list(_made(since, Path(folder)))
    # those of other network namespaces are in no list here, so connecting is tried
    dead = [path for path in _not_held(made) if not _listens(path)]
    # one that was bound in this instant does not listen yet
    dead = _not_held(dead)
    for path in dead:
        with contextlib.suppress(OSError):
            path.unlink()
    return len(dead) == len(made)


def _not_held(sockets: list[Path]) -> list[Path]:
    """Return those that no process has open now."""
    if not sockets:
        return []
    held = _held()
    return [path for path in sockets if str(path) not in held]


def _made(since: float, folder: Path) -> Iterator[Path]:
    try:
        entries = [entry for entry in os.scandir(folder) if _NAME.fullmatch(entry.name)]
    except OSError as error:
        _log.debug("sockets are not listed: %s", error)
        return
    for entry in entries:
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if (
                stat.S_ISSOCK(status.st_mode)
                and status.st_uid == os.geteuid()
                and status.st_mtime >= since
            ):
                yield Path(entry.path)


def _listens(path: Path) -> bool:
    """Return False where connecting is refused (unix(7)).

    A socket with another error is left alone.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as trial:
        try:
            trial.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


def _held() -> set[str]:
    """Return paths of the sockets that processes use (proc(5), net/unix)."""
    try:
        lines = (
            Path("/proc/net/unix")
            .read_text(encoding="utf-8", errors="surrogateescape")
            .splitlines()[1:]
        )
    except OSError as error:
        _log.debug("the sockets in use are not known: %s", error)
        return set()
    fields = (line.split(maxsplit=7) for line in lines)
    return {words[7] for words in fields if len(words) == 8}
