"""A command's complete screen, as a terminal of a given size shows it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_TIMEOUT_SECONDS = 120


def screen(
    words: list[str],
    *,
    columns: int = 80,
    lines: int = 24,
    home: Path,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run ``gaudi-launch`` on a terminal of this size; return what it shows.

    Without colours and trailing blanks. Stdout and stderr are the same terminal. ``home`` is the
    user's folder, and the current folder of the command.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    variables = {
        **os.environ,
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "TERM": "xterm",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        **(environment or {}),
    }
    for name in ("COLUMNS", "LINES", "NO_COLOR", "HABANA_VISIBLE_MODULES"):
        variables.pop(name, None)
    command = [sys.executable, "-m", "gaudi_launch", *words]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=home, env=variables
    ) as process:
        os.close(theirs)
        written = _all_of(ours)
        process.wait(_TIMEOUT_SECONDS)
    return _shown(written.decode())


def _all_of(terminal: int) -> bytes:
    """Read a terminal until its last writer closed it."""
    found = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            piece = b""
        if not piece:
            os.close(terminal)
            return found
        found += piece


def _shown(written: str) -> str:
    """Return lines as they are at the end: a redrawn line is what was drawn last."""
    lines = _ANSI.sub("", written).replace("\r\n", "\n").split("\n")
    return "".join(line.rpartition("\r")[2].rstrip() + "\n" for line in lines).rstrip("\n") + "\n"
