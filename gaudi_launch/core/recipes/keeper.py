"""Keep a cache directory while one engine runs on it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.recipes.attach import CacheJob
from gaudi_launch.core.recipes.cache_session import Session, opened
from gaudi_launch.core.recipes.key_locks import in_use
from gaudi_launch.core.recipes.manifest import walk
from gaudi_launch.core.recipes.sharing import share_all

Say = Callable[[str], None]


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


@contextmanager
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
