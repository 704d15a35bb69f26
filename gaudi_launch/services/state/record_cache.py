"""Read the services' state files again only when they changed.

A scrape of a machine with a thousand services is then a thousand calls of stat, not a thousand
parsed documents.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from gaudi_launch.services.state import registry, store
from gaudi_launch.services.state.registry import ServiceRecord

_log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]


@dataclass
class RecordCache:
    """The services of this user, with the stamp of each state file."""

    _known: dict[str, tuple[_Stamp, ServiceRecord]] = field(default_factory=dict)

    def services(self) -> list[ServiceRecord]:
        """Return every service, the running ones first, then by name."""
        try:
            names = sorted(
                entry.name for entry in os.scandir(store.services_dir()) if entry.is_dir()
            )
        except OSError as error:
            _log.debug("no services are listed: %s", error)
            return []
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
            return replace(record, alive=registry.runs(folder, record.launcher))
        record_now = registry.read(name)
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
