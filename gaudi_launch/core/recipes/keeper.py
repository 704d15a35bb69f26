"""Keep a cache directory while one engine fills it and runs on it."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.recipes.attach import CacheJob
from gaudi_launch.core.recipes.cache_root import Use, folder_of, look_up, missing, skipped
from gaudi_launch.core.recipes.key import KeyParts
from gaudi_launch.core.recipes.key_locks import held, in_use
from gaudi_launch.core.recipes.ledger import Ledger, LedgerError, read_ledger, touched, write_ledger
from gaudi_launch.core.recipes.manifest import walk, write_list
from gaudi_launch.core.recipes.sharing import share, share_all

_log = logging.getLogger(__name__)

Say = Callable[[str], None]

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


def copy_new(source: Path, target: Path) -> None:
    """Copy every file that the target lacks or has in another size.

    Each file appears atomically. Raises OSError (disk full): the target then contains only complete
    files.
    """
    for name, status in walk(source):
        if not S_ISREG(status.st_mode) or not status.st_size:
            continue
        there = target / name
        try:
            if there.stat().st_size == status.st_size:
                continue
        except FileNotFoundError:
            there.parent.mkdir(parents=True, exist_ok=True)
        part = there.with_name(f".{there.name}.part")
        try:
            shutil.copy2(source / name, part)
            part.replace(there)
        finally:
            part.unlink(missing_ok=True)


class Keeper:
    """A cache directory for one run of an engine.

    It is opened before the launch; its ledger is written when it is warm.
    """

    def __init__(self, job: CacheJob, session: Session, say: Say) -> None:
        self._job = job
        self._session = session
        self._say = say
        self._work: threading.Thread | None = None

    def warm(self, seconds: float, num_blocks: int | None) -> None:
        """Record the warm graphs, now that the engine answers.

        Checksums take time, so a thread computes them.
        """
        warmed = self._job.buckets
        if self._job.skips_warmup:
            warmed = Buckets([], [])

        def work() -> None:
            try:
                if self._job.local is not None:
                    copy_new(self._job.local, self._session.folder)
                self._session.finish(seconds, warmed, num_blocks)
            except OSError as error:
                why = error.strerror or str(error)
                self._say(message("cache.not_written", path=str(self._job.root), why=why).render())

        self._work = threading.Thread(target=work)
        self._work.start()

    def close(self) -> None:
        """Wait for the ledger.

        Then copy back what the engine compiled after it was warm.
        """
        if self._work is not None:
            self._work.join()
            if self._job.local is not None:
                copy_new(self._job.local, self._session.folder)
            share_all(self._session.folder, self._session.root)


@contextlib.contextmanager
def kept(job: CacheJob, say: Say, wait_seconds: float = 3600.0) -> Iterator[Keeper]:
    """Lock a cache directory while its engine runs.

    Another launch that fills the same key is waited for: its graphs are then warm. Raises
    LaunchError when the root cannot be used.
    """
    if job.because and in_use(job.root, job.parts.key, fill=True):
        say(message("cache.waiting", key=job.parts.key).render())
    elif job.because:
        say(job.because)
    with opened(job.root, job.parts, job.buckets, wait_seconds=wait_seconds) as session:
        if session.repaired:
            say(message("cache.repaired", count=len(session.repaired)).render())
        if job.local is not None:
            say(message("cache.copying", path=str(job.root), local=str(job.local)).render())
            job.local.mkdir(parents=True, exist_ok=True)
            copy_new(session.folder, job.local)
        keeper = Keeper(job, session, say)
        try:
            yield keeper
        finally:
            keeper.close()
