"""Kernel messages about an engine's end: killed for memory, or no free huge page.

The log of the engine shows neither.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from pathlib import Path

from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.host.sysfs import read_meminfo

_log = logging.getLogger(__name__)

# mm/oom_kill.c: "Out of memory: Killed process 4242 (python3) ...", or the same after "Memory
# cgroup"
_KILLED = re.compile(
    r"(?:Out of memory|Memory cgroup out of memory): Killed process \d{1,10} "
    r"\((?P<name>[^)]{0,64})\)"
)
_OURS = re.compile(r"python|vllm|engine|ray|text-generation|worker", re.IGNORECASE)
_MOST_RECORDS = 20_000
_RECORD_BYTES = 8192
# an engine removes the file that it could not complete before its disk is judged (assumed)
_LEAST_FREE_BYTES = 1 << 20


def killed_since(begin: float) -> list[str]:
    """Return the kernel's lines about engine processes killed for memory.

    They are those since ``begin`` (seconds of `time.monotonic`, the clock of the kernel's stamps).
    The result is empty where the kernel's log may not be read.
    """
    found = []
    for record in _records(machine_root() / "dev/kmsg"):
        # Documentation/ABI/testing/dev-kmsg: priority,number,microseconds,flags;text
        head, _, text = record.partition(";")
        fields = head.split(",")
        killed = _KILLED.search(text)
        if killed is None or len(fields) < 3 or not fields[2].isdigit():
            continue
        if int(fields[2]) / 1e6 >= begin and _OURS.search(killed["name"]):
            found.append(text.splitlines()[0][:300])
    return found


def _records(path: Path) -> list[str]:
    """Return every present record; reading the device gives one at a time."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        _log.debug("the kernel's log is not read: %s", error)
        return []
    records: list[str] = []
    try:
        for _ in range(_MOST_RECORDS):
            try:
                piece = os.read(handle, _RECORD_BYTES)
            except BrokenPipeError:
                # it was overwritten during the read: continue with the next one
                continue
            except OSError as error:
                _log.debug("the kernel's log is not read: %s", error)
                break
            if not piece:
                break
            records += piece.decode("utf-8", errors="replace").split("\n")
    finally:
        os.close(handle)
    return [record for record in records if ";" in record]


def no_hugepages() -> list[str]:
    """Return the line for a lack of free huge pages (proc(5), meminfo).

    They are pages of the kernel's usual size. The result is empty where some are free, or this
    cannot be read.
    """
    try:
        memory = read_meminfo(
            (machine_root() / "proc/meminfo").read_text(encoding="ascii", errors="replace")
        )
    except OSError as error:
        _log.debug("the huge pages are not known: %s", error)
        return []
    free, total = memory.get("HugePages_Free"), memory.get("HugePages_Total")
    if free == 0 and total is not None:
        return [f"HugePages_Free: 0 of {total}"]
    return []


def full_disks(log: Path) -> list[str]:
    """Return a line for each full file system of a log and of temporary files.

    The text is that of errno 28. Blocks reserved for the super-user count as free for it only; a
    file system without free inodes is full, too (statvfs(3)).
    """
    lines = []
    seen = set()
    for folder in (log.parent, Path(tempfile.gettempdir())):
        try:
            device, room = folder.stat().st_dev, os.statvfs(folder)
        except OSError as error:
            _log.debug("the free space is not known: %s", error)
            continue
        blocks = room.f_bfree if os.geteuid() == 0 else room.f_bavail
        free = blocks * room.f_frsize
        full = free < _LEAST_FREE_BYTES or (room.f_files > 0 and room.f_ffree == 0)
        if full and device not in seen:
            seen.add(device)
            lines.append(f"No space left on device: {folder} ({free} bytes free)")
    return lines


def note(log: Path, begin: float, *, cards: bool) -> None:
    """Append such lines to the engine's log, where `why` finds them later, too.

    ``cards``: it used Gaudi cards, whose software needs huge pages.
    """
    lines = killed_since(begin) + (no_hugepages() if cards else [])
    if lines:
        with (
            best_effort(_log, "write the lines of the kernel"),
            log.open("a", encoding="utf-8") as file,
        ):
            file.writelines(f"kernel: {line}\n" for line in lines)
