"""The log for maintainers: child processes, and failures that were suppressed.

Modules log by ``logging.getLogger(__name__)`` at level DEBUG. `kept` writes these lines into one
file below the state folder, shared by every process of the user, and to stderr with ``--debug``. No
secret is in it (`gaudi_launch.core.base.redact`). A file that cannot be written loses its lines,
never the command.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gaudi_launch.core.base import locks, paths

if TYPE_CHECKING:
    _TextHandler = logging.StreamHandler[TextIO]
else:
    # Python 3.10 has no StreamHandler[...] (tried)
    _TextHandler = logging.StreamHandler

FILE_NAME = "gaudi-launch.log"
MOST_BYTES = 1 << 20
_ROOT = "gaudi_launch"
# marks the records about child processes (`core.base.child_log`)
CHILD = "gaudi_launch_child"
_FORM = "%(asctime)s %(process)d %(name)s: %(message)s"

# in a program that uses the package and sets up no logging, nothing is printed
logging.getLogger(_ROOT).addHandler(logging.NullHandler())


def log_path() -> Path:
    """Return the log's path; its earlier part has the same name with ``.1`` after it."""
    return paths.state_dir() / FILE_NAME


@contextlib.contextmanager
def kept(*, debug: bool) -> Iterator[None]:
    """Write the log to its file, and to stderr with ``debug``, within the block.

    For a program's outermost call.
    """
    logger = logging.getLogger(_ROOT)
    handlers: list[logging.Handler] = [FileHandler()]
    if debug:
        handlers.append(StderrHandler(sys.stderr))
    former_level = logger.level
    logger.setLevel(logging.DEBUG)
    for handler in handlers:
        handler.setFormatter(_Formatter(_FORM))
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(former_level)
        for handler in handlers:
            logger.removeHandler(handler)


class _Formatter(logging.Formatter):
    """Formats lines without secrets.

    A traceback follows its line, indented, so that each record has one beginning.
    """

    def format(self, record: logging.LogRecord) -> str:
        from gaudi_launch.core.base.redact import redact_text

        # an error may quote any text
        return redact_text(super().format(record)).replace("\n", "\n    ")


class FileHandler(logging.Handler):
    """Appends each record to the file with one write.

    Lines of several processes do not mix. Only a child process makes the state folder: a command
    that is refused changes nothing on disk.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if not (hasattr(record, CHILD) or log_path().parent.is_dir()):
                return
            _append(log_path(), f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except (OSError, RuntimeError):
            # a full or read-only disk, no home folder (Path.home raises RuntimeError)
            return


class StderrHandler(_TextHandler):
    """Writes records to stderr; a closed reader is not an error of the command."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop a record that cannot be written."""


def _append(path: Path, line: bytes) -> None:
    """Append a line to the log, which stays below `MOST_BYTES`. Raises OSError."""
    handle = _open(path)
    try:
        if os.fstat(handle).st_size + len(line) > MOST_BYTES:
            handle = _rotated(path, handle)
        os.write(handle, line[:MOST_BYTES])
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    """Open the log for its user only.

    Raises OSError, also for what is not a regular file.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("not a regular file")
        os.fchmod(handle, 0o600)
    except OSError:
        os.close(handle)
        raise
    return handle


def _rotated(path: Path, handle: int) -> int:
    """Rename a full log and return a new one, open.

    Of several processes one renames it. Raises OSError.
    """
    if not locks.try_take(handle):
        # another process is renaming it: this line still belongs to the old part
        return handle
    with contextlib.suppress(FileNotFoundError):
        # another process may have renamed it since it was opened here
        if os.path.samestat(os.fstat(handle), path.stat(follow_symlinks=False)):
            path.replace(path.with_name(f"{path.name}.1"))
    fresh = _open(path)
    os.dup2(fresh, handle, inheritable=False)
    os.close(fresh)
    return handle


@contextlib.contextmanager
def best_effort(logger: logging.Logger, what: str, *errors: type[BaseException]) -> Iterator[None]:
    """Suppress these errors (default: OSError) in the block, and log them."""
    passed = errors or (OSError,)
    try:
        yield
    except passed:
        logger.debug("%s: passed over", what, exc_info=True)
