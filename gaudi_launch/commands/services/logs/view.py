"""A service's log for programs: one object, or one per line while it grows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Protocol

from gaudi_launch.cli.streams import is_utf


class Sink(Protocol):
    """The receiver of a log's bytes."""

    def write(self, piece: bytes, /) -> object: ...

    def flush(self) -> None: ...


def log_json(name: str, path: Path, content: bytes | None) -> dict[str, Any]:
    """Return a log as one object.

    ``content``: its bytes, None where the log has not begun.
    """
    lines = [] if content is None else content.decode("utf-8", "replace").splitlines()
    return {
        "schema": 1,
        "name": name,
        "path": str(path),
        "begun": content is not None,
        "lines": lines,
    }


class LineObjects:
    """Print each complete line of the bytes as one JSON object on stdout."""

    def __init__(self) -> None:
        self._rest = b""

    def write(self, piece: bytes, /) -> None:
        """Take bytes; a line that has no end yet is kept."""
        *complete, self._rest = (self._rest + piece).split(b"\n")
        for line in complete:
            self._print(line)

    def flush(self) -> None:
        """Hand what was printed to the reader."""
        sys.stdout.flush()

    def close(self) -> None:
        """Print a last line that has no end."""
        if self._rest:
            self._print(self._rest)
            self._rest = b""
        self.flush()

    @staticmethod
    def _print(line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        print(json.dumps({"schema": 1, "line": text}, ensure_ascii=not is_utf(sys.stdout)))
