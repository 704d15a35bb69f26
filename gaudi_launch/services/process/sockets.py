"""Sockets that an engine left in the temporary directory: vLLM removes those of its processes at no end of its own.

vLLM names them by a UUID, V0 with a word behind it (vllm: utils/network_utils.py get_open_zmq_ipc_path; the fork's
engine/multiprocessing IPC_*_EXT); two stay for each stop, more for each kill (seen with vLLM's CPU build).
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

_NAME = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:_(?:input|output|health|data)_socket)?", re.ASCII
)


def remove_dead(since: float, environment: Mapping[str, str]) -> bool:
    """Remove such sockets of this user, made since then (seconds of `time.time`), that no process holds any more;
    False when some are still held, by another engine or by one that is on its way out.

    ``environment`` is the engine's, which may name another place for them.
    """
    folder = environment.get("VLLM_RPC_BASE_PATH") or environment.get("TMPDIR") or tempfile.gettempdir()
    made = list(_made(since, Path(folder)))
    # those of other network namespaces are in no list of ours, so the rest is tried
    held = _held() if made else set()
    dead = [path for path in made if str(path) not in held and not _listens(path)]
    # one that was bound in this instant does not listen yet
    held = _held() if dead else set()
    dead = [path for path in dead if str(path) not in held]
    for path in dead:
        with contextlib.suppress(OSError):
            path.unlink()
    return len(dead) == len(made)


def _made(since: float, folder: Path) -> Iterator[Path]:
    try:
        entries = [entry for entry in os.scandir(folder) if _NAME.fullmatch(entry.name)]
    except OSError:
        return
    for entry in entries:
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid() and status.st_mtime >= since:
                yield Path(entry.path)


def _listens(path: Path) -> bool:
    """Nobody does where connecting is refused (unix(7)); anything else is left alone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as trial:
        try:
            trial.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


def _held() -> set[str]:
    """Paths of the sockets that processes hold (proc(5), net/unix)."""
    try:
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="surrogateescape").splitlines()[1:]
    except OSError:
        return set()
    fields = (line.split(maxsplit=7) for line in lines)
    return {words[7] for words in fields if len(words) == 8}
