"""Read a log while it grows, is truncated or gets a new file."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import BinaryIO

_log = logging.getLogger(__name__)

_PIECE = 1 << 16


class Tail:
    """Reads what is added to a log; one that does not exist yet is empty."""

    def __init__(self, path: Path, last: int | None = None) -> None:
        """Begin at the last lines; None: at the beginning."""
        self._path = path
        self._file: BinaryIO | None = None
        if last is not None and path.exists():
            self._file = path.open("rb")
            self._file.seek(start_of_last(self._file, last))

    def read(self) -> bytes:
        """Return what was added since the last call.

        A log that was truncated, or renamed for a new run, is read from its new beginning.
        """
        try:
            now = self._path.stat()
            if self._file is None:
                self._file = self._path.open("rb")
        except OSError as error:
            _log.debug("a log is not read: %s", error)
            return b""
        added = self._file.read()
        if now.st_ino != os.fstat(self._file.fileno()).st_ino:
            self._file.close()
            self._file = self._path.open("rb")
            return added + self._file.read()
        if now.st_size < self._file.tell():
            self._file.seek(0)
        return added

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def start_of_last(file: BinaryIO, lines: int) -> int:
    """Return the offset of the last N lines, read from the end."""
    size = at = file.seek(0, 2)
    if not lines:
        return size
    # the newline that ends the last line does not begin another
    left = lines + 1
    while at > 0:
        begin = max(0, at - _PIECE)
        file.seek(begin)
        piece = file.read(at - begin)
        if at == size and not piece.endswith(b"\n"):
            left -= 1
        end = len(piece)
        while (found := piece.rfind(b"\n", 0, end)) >= 0:
            left -= 1
            if not left:
                return begin + found + 1
            end = found
        at = begin
    return 0
