"""Child processes: their lines in the debug log, and the end of their output."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

from gaudi_launch.core.base.debug_log import CHILD
from gaudi_launch.core.base.redact_values import redact_arguments

_LONGEST_ARGUMENT = 300


class _Arguments:
    """An argument list as the log shows it, made only where it is written."""

    def __init__(self, argv: Sequence[str | os.PathLike[str]]) -> None:
        self._argv = [os.fspath(each) for each in argv]

    def __str__(self) -> str:
        return repr([_short(each) for each in redact_arguments(self._argv)])


def _short(argument: str) -> str:
    if len(argument) <= _LONGEST_ARGUMENT:
        return argument
    return f"{argument[:_LONGEST_ARGUMENT]}... ({len(argument)} characters)"


class ChildLog:
    """The log's lines about one child process: arguments at its start, and outcome.

    Each is logged once.
    """

    def __init__(self, logger: logging.Logger, argv: Sequence[str | os.PathLike[str]]) -> None:
        self._logger = logger
        self._begin = time.monotonic()
        self._name = Path(argv[0]).name
        self._open = True
        logger.debug("run %s", _Arguments(argv), extra={CHILD: True})

    def started(self, pid: int) -> None:
        """Record the pid, which the outcome's line repeats."""
        self._name = f"{self._name}[{pid}]"

    def failed(self, error: OSError) -> None:
        """Log that the process could not be started."""
        self._open = False
        self._logger.debug(
            "%s: not started: %s", self._name, error.strerror or type(error).__name__
        )

    def continues(self) -> None:
        """Log that the process outlives this one."""
        self._open = False
        self._logger.debug("%s: continues in the background", self._name)

    def ended(self, status: int | None, why: str = "") -> None:
        """Log the exit status (None: unknown) and the seconds. The first call counts."""
        if not self._open:
            return
        self._open = False
        seconds = time.monotonic() - self._begin
        shown = "unknown" if status is None else status
        after = f" ({why})" if why else ""
        self._logger.debug("%s: exit status %s after %.2f s%s", self._name, shown, seconds, after)


def end_of(path: Path, most: int, begin: int = 0) -> str:
    """Return the text of a log's last ``most`` bytes, without those before ``begin``.

    Raises OSError.
    """
    with path.open("rb") as file:
        file.seek(max(begin, file.seek(0, os.SEEK_END) - most))
        return file.read().decode("utf-8", errors="replace")
