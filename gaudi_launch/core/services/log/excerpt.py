"""The relevant parts of a log, its beginning and its end.

A log may be a file, a pipe, huge, or not a text.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gaudi_launch.core.base.errors import ExitCode, LaunchError

HEAD_BYTES = 1 << 20
TAIL_BYTES = 4 << 20
_PIECE = 1 << 18
_PROBE_BYTES = 8192


@dataclass(frozen=True)
class Excerpt:
    """``text`` is beginning and end.

    After its line ``head_lines``, ``skipped_lines`` of the log are left out.
    """

    text: str
    head_lines: int
    skipped_lines: int = 0

    def line_in_file(self, line: int) -> int:
        """Return a line number of the excerpt as one of the complete log."""
        if line <= self.head_lines:
            return line
        return line + self.skipped_lines


def name_of(path: Path | None) -> str:
    """Return a log's path as text; "-" is stdin."""
    if path is None:
        return "-"
    return str(path)


def read_excerpt(path: Path | None) -> Excerpt:
    """Return a log's beginning and end; None is stdin.

    Everything is read once, so a pipe is possible. Raises LaunchError (USAGE) for what cannot be
    read, or is not a text.
    """
    name = name_of(path)
    try:
        if path is None:
            return _read(sys.stdin.buffer, name)
        with path.open("rb") as file:
            return _read(file, name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LaunchError("diagnose.unreadable", ExitCode.USAGE, path=name, why=reason) from None


def _read(file: BinaryIO, name: str) -> Excerpt:
    head = _take(file, HEAD_BYTES)
    if b"\0" in head[:_PROBE_BYTES]:
        raise LaunchError("diagnose.binary", ExitCode.USAGE, path=name)
    pieces: deque[bytes] = deque()
    held = skipped = 0
    while piece := file.read(_PIECE):
        pieces.append(piece)
        held += len(piece)
        while held - len(pieces[0]) >= TAIL_BYTES:
            gone = pieces.popleft()
            held -= len(gone)
            skipped += gone.count(b"\n")
    tail = b"".join(pieces)
    cut = skipped > 0
    if cut:
        # the end begins in the middle of a line: leave that one out, and close the beginning's last
        _, _, rest = tail.partition(b"\n")
        skipped += 1
        head = head.rpartition(b"\n")[0] + b"\n"
        tail = rest
    return Excerpt(
        (head + tail).decode("utf-8", errors="replace"), head.count(b"\n"), skipped if cut else 0
    )


def _take(file: BinaryIO, size: int) -> bytes:
    """Read this number of bytes, also from a pipe that delivers small pieces."""
    parts = []
    while size > 0 and (piece := file.read(min(size, _PIECE))):
        parts.append(piece)
        size -= len(piece)
    return b"".join(parts)
