"""One fill of a cache directory from begin to end."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.recipes.cache_root import Use, folder_of, look_up, missing, skipped
from gaudi_launch.core.recipes.key import KeyParts
from gaudi_launch.core.recipes.key_locks import held
from gaudi_launch.core.recipes.ledger import Ledger, LedgerError, read_ledger, touched, write_ledger
from gaudi_launch.core.recipes.manifest import walk, write_list
from gaudi_launch.core.recipes.sharing import share, share_all

_log = logging.getLogger(__name__)

_KEEP_TIMES = 19


@dataclass
class Session:
    """A cache directory while one engine runs on it; made by `opened`.

    ``filled`` lets others fill it.
    """

    root: Path
    ledger: Ledger
    filling: bool
    repaired: tuple[str, ...] = ()
    filled: Callable[[], None] = lambda: None

    @property
    def folder(self) -> Path:
        return folder_of(self.root, self.ledger, self.ledger.key)

    def finish(self, seconds: float, warmed: Buckets, num_blocks: int | None) -> None:
        """List the files and record what is warm, now that the warm-up ended.

        Launches that wait for this fill continue.
        """
        try:
            self._finish(seconds, warmed, num_blocks)
        finally:
            self.filled()

    def _finish(self, seconds: float, warmed: Buckets, num_blocks: int | None) -> None:
        skip = skipped(self.root, self.folder)
        share_all(self.folder, self.root)
        files, total = write_list(self.root, self.ledger.key, self.folder, skip)
        known = self.ledger
        if not self.filling:
            # another launch may be filling it, or have filled it in the meantime
            known = self._written()
        # a changed number of KV blocks made the older graphs useless
        if known.num_blocks in (None, num_blocks):
            warmed = Buckets(
                known.buckets.prompt + missing(warmed.prompt, known.buckets.prompt),
                known.buckets.decode + missing(warmed.decode, known.buckets.decode),
            )
        ledger = touched(known, time.time())
        if self.filling:
            ledger = replace(ledger, filled_seconds=(*ledger.filled_seconds, seconds))
        else:
            ledger = replace(ledger, used_seconds=(*ledger.used_seconds[-_KEEP_TIMES:], seconds))
        self.ledger = replace(
            ledger,
            complete=self.filling or known.complete,
            buckets=warmed,
            num_blocks=num_blocks,
            files=files,
            bytes=total,
        )
        write_ledger(self.root, self.ledger)

    def _written(self) -> Ledger:
        """Return the ledger as it is now."""
        try:
            return read_ledger(self.root, self.ledger.key) or self.ledger
        except LedgerError as error:
            _log.debug("the index is not read again: %s", error)
            return self.ledger


@contextlib.contextmanager
def opened(
    root: Path,
    parts: KeyParts,
    wanted: Buckets,
    num_blocks: int | None = None,
    wait_seconds: float = 0.0,
) -> Iterator[Session]:
    """Lock the directory of these parts while an engine runs on it.

    It is shared with other services. A miss is a fill, which only one launch does at a time, until
    its ``finish``; zero-length files of an interrupted fill are removed first. Until then the
    ledger records that the fill is not complete, so a kill at any point leaves nothing that claims
    more than it has. Raises LaunchError when the root cannot be written or another launch is
    filling the key.
    """
    key = parts.key
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(root, error) from None
    with (
        held(root, key, exclusive=False, wait_seconds=wait_seconds),
        contextlib.ExitStack() as fill,
    ):
        use = look_up(root, parts, wanted, num_blocks)
        if use.state != "hit":
            fill.enter_context(
                held(root, key, exclusive=True, wait_seconds=wait_seconds, fill=True)
            )
            # the launch that was waited for may have filled it
            use = look_up(root, parts, wanted, num_blocks)
            if use.state == "hit":
                fill.close()
        try:
            yield _begin(root, parts, use, fill.close)
        except OSError as error:
            raise _not_writable(root, error) from None


def _not_writable(root: Path, error: OSError) -> LaunchError:
    """Return the error of a root: another user's, or a full or read-only disk."""
    why = error.strerror or str(error)
    id = "cache.not_writable"
    if isinstance(error, PermissionError):
        id = "cache.not_shared"
    return LaunchError(id, ExitCode.FAILED, path=str(root), why=why)


def _begin(root: Path, parts: KeyParts, use: Use, filled: Callable[[], None]) -> Session:
    now = time.time()
    filling = use.state != "hit"
    # "." is the root itself
    folder = str(use.folder.relative_to(root))
    ledger = use.ledger or Ledger(parts, folder, created=now)
    repaired: tuple[str, ...] = ()
    if filling:
        use.folder.mkdir(parents=True, exist_ok=True)
        share(use.folder, root)
        # remove empty files, and those that another user of the root left unreadable
        names = [
            name
            for name, status in walk(use.folder, skipped(root, use.folder))
            if not status.st_size or not os.access(use.folder / name, os.R_OK)
        ]
        for name in names:
            (use.folder / name).unlink(missing_ok=True)
        repaired = tuple(names)
        ledger = replace(ledger, complete=False)
    ledger = touched(ledger, now)
    write_ledger(root, ledger)
    return Session(root, ledger, filling, repaired, filled)
