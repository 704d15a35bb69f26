"""The changes that `doctor --fix` may make, and their reversal.

They are plain file writes below the machine root. Only what is reversible is here: settings of the
running kernel, separate files that keep them after a reboot, and docker's runtimes, with the
program that reads a file (update-grub, systemctl). BIOS, and GRUB of other distributions, are
explained (`guides`), never changed.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.doctor import journal
from gaudi_launch.core.doctor.findings import Finding, Wants
from gaudi_launch.core.doctor.guides import UPDATE
from gaudi_launch.core.doctor.journal import Former, Journal
from gaudi_launch.core.host.config_files import CPU, DOCKER, RUNTIME, assignments
from gaudi_launch.core.host.host_config import HostConfig, cpus_without

_log = logging.getLogger(__name__)

GOVERNOR_FILE = "etc/tmpfiles.d/gaudi-launch-governor.conf"
NUMA_FILE = "etc/sysctl.d/90-gaudi-launch-numa-balancing.conf"
HUGEPAGES_FILE = "etc/sysctl.d/90-gaudi-launch-hugepages.conf"
LIMITS_FILE = "etc/security/limits.d/90-gaudi-launch.conf"
# Ubuntu's and Debian's patch default-grub-d reads it after /etc/default/grub
BOOT_FILE = "etc/default/grub.d/90-gaudi-launch.cfg"
_BOOT = "GRUB_CMDLINE_LINUX_DEFAULT"
_PROGRAM_SECONDS = 300.0
_HEAD = "# Written by gaudi-launch doctor --fix; 'gaudi-launch doctor --undo' takes it away.\n"
_MODE = 0o644


@dataclass(frozen=True)
class Change:
    """One file to write.

    ``kernel`` files are written in place and compared by their value. ``program`` is run after the
    write, and after the file was restored.
    """

    fix: str
    path: str
    content: str
    kernel: bool
    program: str = ""


@dataclass(frozen=True)
class RemedyOutcome:
    """The result of one change.

    ``status``: ``changed``, ``restored``, ``same`` (was correct already), ``kept`` (changed by
    another program since), ``failed``. Contents are None where there is no file.
    """

    path: str
    status: str
    before: str | None = None
    after: str | None = None
    reason: str = ""


def planned(findings: Iterable[Finding], config: HostConfig, wants: Wants) -> list[Change]:
    """Return the writes that fix these findings, in order.

    Findings without a reversible remedy give none.
    """
    fixes = {
        finding.remedy.fix: finding.remedy
        for finding in findings
        if finding.status in ("warn", "fail") and finding.remedy and finding.remedy.fix
    }
    root = Path(config.root)
    changes = [
        change
        for fix, remedy in fixes.items()
        for change in _changes(fix or "", config, wants, remedy.arguments)
    ]
    return [change for change in changes if not _is_right(root, change)]


def _changes(
    fix: str, config: HostConfig, wants: Wants, arguments: tuple[str, ...]
) -> list[Change]:
    if fix == "boot":
        # what an earlier run wrote stays
        own = assignments(content(Path(config.root), BOOT_FILE) or "").get(_BOOT, "").split()[1:]
        line = f'{_BOOT}="{" ".join((f"${_BOOT}", *own, *arguments))}"\n'
        return [Change(fix, BOOT_FILE, _HEAD + line, False, config.programs[UPDATE])]
    if fix == "runtime":
        # docker reads "runtimes" again without a restart (docs: dockerd, configuration reload)
        document = parse_json(content(Path(config.root), DOCKER) or "{}")
        habana = {"habana": {"path": RUNTIME, "runtimeArgs": []}}
        document["runtimes"] = {**document.get("runtimes", {}), **habana}
        systemctl = config.programs.get("systemctl")
        program = f"{systemctl} reload docker" if systemctl else ""
        return [Change(fix, DOCKER, json.dumps(document, indent=4) + "\n", False, program)]
    if fix == "governor":
        place = f"{CPU}/cpu{{}}/cpufreq/scaling_governor"
        now = [
            (place.format(cpu), "performance\n")
            for cpu in cpus_without(config.governors, "performance")
        ]
        keep = (GOVERNOR_FILE, f"w /{place.format('*')} - - - - performance\n")
    elif fix == "numa_balancing":
        now = [("proc/sys/kernel/numa_balancing", "0\n")]
        keep = (NUMA_FILE, "kernel.numa_balancing = 0\n")
    elif fix == "hugepages":
        now = [("proc/sys/vm/nr_hugepages", f"{wants.pages}\n")]
        keep = (HUGEPAGES_FILE, f"vm.nr_hugepages = {wants.pages}\n")
    elif fix == "limits":
        now = []
        lines = (
            f"{who} - {limit}\n"
            for who in ("*", "root")
            for limit in ("nofile 1048576", "memlock unlimited")
        )
        keep = (LIMITS_FILE, "".join(lines))
    else:
        raise ValueError(f"no such fix: {fix}")
    changes = [Change(fix, path, content, True) for path, content in now]
    return [*changes, Change(fix, keep[0], _HEAD + keep[1], False)]


def _is_right(root: Path, change: Change) -> bool:
    now = _read(root / change.path)
    if now is None:
        return False
    wanted = change.content.encode()
    if change.kernel:
        return now.split() == wanted.split()
    return now == wanted


def content(root: Path, path: str) -> str | None:
    """Return the present content of a file to be changed; None where there is none."""
    return _text(_read(root / path))


def refused(root: Path, changes: Iterable[Change]) -> list[str]:
    """Return paths that this user may not write.

    They are known before anything is changed.
    """
    found = []
    for change in changes:
        path = root / change.path
        place = path
        if not change.kernel or not path.exists():
            # a drop-in is replaced, so the rights of its folder count
            place = path.parent
            while not place.exists() and place != place.parent:
                place = place.parent
        if not os.access(place, os.W_OK):
            found.append(f"/{change.path}")
    return found


def apply(
    root: Path, changes: Sequence[Change], on_step: Callable[[str, Change], None] | None = None
) -> list[RemedyOutcome]:
    """Write the changes, each one journalled first.

    One that fails leaves its file unchanged, and the others continue. ``on_step`` receives
    ``journalled`` and ``written`` of each change. Raises LaunchError (FAILED) when the journal
    cannot be written: without it nothing is changed.
    """
    with _journal() as book:
        return [
            _apply_one(root, change, book, on_step or (lambda step, c: None)) for change in changes
        ]


@contextmanager
def _journal() -> Iterator[Journal]:
    with ExitStack() as stack:
        try:
            book = stack.enter_context(journal.opened())
        except OSError as error:
            place, reason = str(journal.journal_path()), error.strerror or str(error)
            raise LaunchError(
                "doctor.journal", ExitCode.FAILED, path=place, reason=reason
            ) from None
        yield book


def _apply_one(
    root: Path, change: Change, book: Journal, on_step: Callable[[str, Change], None]
) -> RemedyOutcome:
    path = root / change.path
    before = _read(path)
    if _is_right(root, change):
        return RemedyOutcome(change.path, "same", _text(before), _text(before))
    try:
        _inside(root, path)
        mode = stat.S_IMODE(path.stat().st_mode) if before is not None else None
        if change.kernel and before is None:
            raise FileNotFoundError(2, "no such setting in this kernel")
        folders = [] if change.kernel else _missing_folders(root, path)
        former = Former(
            number=book.next_number(),
            root=str(root),
            path=change.path,
            content=before,
            mode=mode,
            wrote=change.content.encode(),
            kernel=change.kernel,
            folders=tuple(folders),
            program=change.program,
        )
        book.add(former)
    except OSError as error:
        return RemedyOutcome(
            change.path, "failed", _text(before), _text(before), error.strerror or str(error)
        )
    on_step("journalled", change)
    try:
        for folder in folders:
            (root / folder).mkdir(exist_ok=True)
        _write(path, former.wrote, mode, change.kernel)
        _run(root, change.program)
    except OSError as error:
        reason = error.strerror or str(error)
        undone = _restore(root, former)
        if undone.status != "failed":
            book.undone(former.number)
        return RemedyOutcome(change.path, "failed", _text(before), _text(_read(path)), reason)
    on_step("written", change)
    return RemedyOutcome(change.path, "changed", _text(before), _text(_read(path)))


def undo(root: Path, on_step: Callable[[Former], None] | None = None) -> list[RemedyOutcome]:
    """Restore what the journal contains for this root, newest first.

    A restored file is recorded immediately, so an interrupted undo resumes where it stopped. Raises
    LaunchError (FAILED) when the journal cannot be opened.
    """
    if not journal.journal_path().exists():
        return []
    with _journal() as book:
        outcomes = []
        for former in reversed(book.waiting(root)):
            outcome = _restore(root, former)
            outcomes.append(outcome)
            if on_step:
                on_step(former)
            if outcome.status != "failed":
                book.undone(former.number)
        return outcomes


def _restore(root: Path, former: Former) -> RemedyOutcome:
    path = root / former.path
    now = _read(path)
    try:
        _inside(root, path)
        if not former.kernel:
            _temporary(path).unlink(missing_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if now is not None else None
        if now == former.content and mode == former.mode:
            _remove_folders(root, former)
            _run(root, former.program)
            return RemedyOutcome(former.path, "same", _text(now), _text(now))
        if not former.kernel and now != former.wrote and now is not None:
            # a later edit by another program is kept
            return RemedyOutcome(former.path, "kept", _text(now), _text(now))
        if former.content is None:
            path.unlink(missing_ok=True)
            _remove_folders(root, former)
        else:
            _write(path, former.content, former.mode, former.kernel)
        _run(root, former.program)
    except OSError as error:
        return RemedyOutcome(
            former.path, "failed", _text(now), _text(_read(path)), error.strerror or str(error)
        )
    return RemedyOutcome(former.path, "restored", _text(now), _text(_read(path)))


def _run(root: Path, program: str) -> None:
    """Run the program that reads a changed file.

    Raises OSError with what it printed last.
    """
    if not program:
        return
    words = program.split()
    try:
        done = interrupt.run(
            [str(root / words[0].lstrip("/")), *words[1:]], seconds=_PROGRAM_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(0, str(error)) from None
    if done.returncode:
        lines = f"{done.stdout}\n{done.stderr}".strip().splitlines()
        raise OSError(0, f"{program}: {[str(done.returncode), *lines][-1]}")


def _remove_folders(root: Path, former: Former) -> None:
    for folder in reversed(former.folders):
        try:
            (root / folder).rmdir()
        except OSError as error:
            _log.debug("a folder is kept: %s", error)
            return  # another program put a file there since


def _missing_folders(root: Path, path: Path) -> list[str]:
    missing = []
    folder = path.parent
    while folder != root and not folder.exists():
        missing.append(str(folder.relative_to(root)))
        folder = folder.parent
    return missing[::-1]


def _inside(root: Path, path: Path) -> None:
    """Raise OSError when a link would redirect the write."""
    parent = path.parent
    while not parent.exists() and parent != root:
        parent = parent.parent
    resolved = parent.resolve()
    if path.is_symlink() or not resolved.is_relative_to(root.resolve()):
        raise OSError(0, "a symbolic link leads elsewhere; not followed")


def _write(path: Path, content: bytes, mode: int | None, kernel: bool) -> None:
    if kernel:
        # the kernel reads a value in one write, and its files cannot be replaced
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(handle, content)
        finally:
            os.close(handle)
        return
    temporary = _temporary(path)
    handle = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fchmod(out.fileno(), _MODE if mode is None else mode)
            os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _temporary(path: Path) -> Path:
    """Return a temporary name next to the file, which undo finds after a kill.

    No reader of drop-ins reads it.
    """
    return path.with_name(f".{path.name}.gaudi-launch")


def _read(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        _log.debug("a file is not read: %s", error)
        return None
    try:
        with os.fdopen(handle, "rb") as file:
            return file.read(1 << 20)
    except OSError as error:
        _log.debug("a file is not read: %s", error)
        return None


def _text(content: bytes | None) -> str | None:
    if content is None:
        return None
    return content.decode("utf-8", errors="replace")
