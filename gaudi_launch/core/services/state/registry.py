"""Find the services of this user on this machine, and whether they are running."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import locks
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.messages import catalogue, language, text
from gaudi_launch.core.services.diagnosis.endings import ended
from gaudi_launch.core.services.log.phase_names import phase_text
from gaudi_launch.core.services.state import store
from gaudi_launch.core.services.state.identity import Identity, boot_id, identity_in

_log = logging.getLogger(__name__)

_LOCK = "lock"
ENDED = ("stopped", "failed")


@dataclass(frozen=True)
class LockAnswer:
    """An answer of the lock of a service's folder.

    ``held`` is None where it cannot be inspected, for the system's reason ``why``.
    """

    held: bool | None
    why: str = ""


@dataclass(frozen=True)
class ServiceRecord:
    """One service as its folder shows it.

    ``alive``: its launcher has locked the folder, whatever pids indicate.
    """

    name: str
    folder: Path
    state: Mapping[str, Any]
    alive: bool

    @property
    def phase(self) -> str:
        """Return the phase of the service.

        ``lost`` when its launcher ended without a message (killed, or the machine went down).
        """
        phase = str(self.state.get("phase", "start"))
        if self.alive:
            return phase
        if phase in ENDED and "outcome" in self.state:
            return phase
        return "lost"

    @property
    def failed(self) -> bool:
        """Return True if its last run ended by itself."""
        return not self.alive and self.phase in ("failed", "lost")

    @property
    def launcher(self) -> Identity | None:
        return identity_in(self.state, "launcher")

    @property
    def rebooted(self) -> bool:
        """Return True if the machine was rebooted since the service began."""
        now = boot_id()
        return self.launcher is not None and now != "" and self.launcher.boot != now

    @property
    def error(self) -> str:
        """Return why its last run failed, in the reader's language; "" without a failure."""
        known = str(self.state.get("error_id") or "")
        # the record has no values for the places of a text
        if known in catalogue(language()) and "{" not in catalogue(language())[known]:
            return text(known)
        recorded = str(self.state.get("error") or self.state.get("detail") or "")
        status = self.state.get("status")
        failed = self.state.get("outcome") == "died" or (self.alive and self.state.get("restarts"))
        if not recorded and failed and isinstance(status, int):
            return ended("died", status)
        return recorded

    @property
    def url(self) -> str:
        return str(self.state.get("url", ""))

    @property
    def models(self) -> frozenset[str]:
        """Return the names of its model: in requests, on the command line, of its folder."""
        model = mapping((store.read(self.folder, "plan.json") or {}).get("model"))
        path = str(self.state.get("model") or "")
        names = (self.state.get("served"), model.get("name"), path, Path(path).name)
        return frozenset(name for name in names if isinstance(name, str) and name)

    @property
    def modules(self) -> tuple[int, ...]:
        return tuple(m for m in array(self.state.get("modules")) if isinstance(m, int))


def services() -> list[ServiceRecord]:
    """Return every service of this user, the running ones first, then by name."""
    return RecordCache().services()


def _names() -> list[str]:
    """Return the folders of this user's services, by name."""
    try:
        return sorted(entry.name for entry in os.scandir(store.services_dir()) if entry.is_dir())
    except OSError as error:
        _log.debug("no services are listed: %s", error)
        return []


def _read_own(name: str) -> ServiceRecord | None:
    """Return the service of this name; None also where another user wrote its record."""
    try:
        return read(name)
    except LaunchError as error:
        _log.debug("a service is not listed: %s", error)
        return None


def read(name: str) -> ServiceRecord | None:
    """Return the service of this name, None when there is none.

    Raises LaunchError (FAILED) for a record of another user, as sudo with this user's HOME leaves.
    """
    if not store.is_name(name):
        return None
    folder = store.services_dir() / name
    document = store.read(folder, "state.json")
    if document is None:
        if not _exists(folder / "state.json"):
            return None
        # a damaged file hides no service: its lock still shows whether it is running
        document = {}
    launcher = identity_in(document, "launcher")
    return ServiceRecord(name, folder, document, runs(folder, launcher))


def _exists(path: Path) -> bool:
    """Return whether a record exists.

    Raises LaunchError (FAILED) for one of another user.
    """
    try:
        return path.is_file()
    except PermissionError:
        folder = path.parent
        raise LaunchError(
            "services.foreign_record",
            ExitCode.FAILED,
            name=folder.name,
            path=str(folder),
            user=locks.user_name(folder.lstat().st_uid),
        ) from None


def ask_lock(folder: Path) -> LockAnswer:
    """Return whether a launcher has locked a service's folder, without locking it."""
    try:
        handle = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return LockAnswer(locks.is_ofd_locked(handle))
        finally:
            os.close(handle)
    except OSError as error:
        return LockAnswer(None, error.strerror or str(error))


def runs(folder: Path, launcher: Identity | None = None) -> bool:
    """Return True if a service's launcher runs.

    Shown by its lock, else by the process that its state names. ``launcher`` is that process where
    the caller knows it.
    """
    held = ask_lock(folder).held
    if held is not None:
        return held
    if launcher is None:
        launcher = identity_in(store.read(folder, "state.json") or {}, "launcher")
    return launcher is not None and launcher.alive


@contextlib.contextmanager
def hold(name: str) -> Iterator[int]:
    """Create the service's folder and lock it.

    The handle may be passed to another process of this program. Raises LaunchError (USAGE) when a
    service of this name runs.
    """
    handle = store.open_lock(store.make_dir(name) / _LOCK)
    try:
        if not locks.try_ofd(handle):
            raise LaunchError("services.name_taken", ExitCode.USAGE, name=name)
        yield handle
    finally:
        os.close(handle)


_Stamp = tuple[int, int, int]


@dataclass
class RecordCache:
    """The services of this user, with the stamp of each state file."""

    _known: dict[str, tuple[_Stamp, ServiceRecord]] = field(default_factory=dict)

    def services(self) -> list[ServiceRecord]:
        """Return every service, the running ones first, then by name."""
        names = _names()
        for name in self._known.keys() - set(names):
            del self._known[name]
        found = [record for record in map(self._read, names) if record is not None]
        return sorted(found, key=lambda record: not record.alive)

    def _read(self, name: str) -> ServiceRecord | None:
        folder = store.services_dir() / name
        stamp = _stamp(folder / "state.json")
        known = self._known.get(name)
        if known is not None and stamp is not None and known[0] == stamp:
            record = known[1]
            return replace(record, alive=runs(folder, record.launcher))
        record_now = _read_own(name)
        if record_now is not None and stamp is not None:
            self._known[name] = (stamp, record_now)
        return record_now


def _stamp(path: Path) -> _Stamp | None:
    """Return what changes when a file is replaced or written; None without a file."""
    try:
        status = path.stat()
    except OSError as error:
        _log.debug("the state is not read: %s", error)
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def phase(service: ServiceRecord) -> str:
    """Return the phase of a service as text, with its progress."""
    if service.phase == "ready":
        return text("services.phase_ready")
    words = phase_text(service.phase)
    done, total = service.state.get("done"), service.state.get("total")
    if service.alive and total:
        return f"{words} {done}/{total}"
    return words
