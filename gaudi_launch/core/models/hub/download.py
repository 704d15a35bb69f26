"""Fetch a model: list, choose, transfer in a child process, verify, resume.

The hub's own library does the transfer.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import mirrors
from gaudi_launch.core.base.background import in_background
from gaudi_launch.core.base.child_log import ChildLog
from gaudi_launch.core.base.debug_log import best_effort
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.guard import guarded
from gaudi_launch.core.base.interrupt import deferred, pause
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.base.redact import redact_text
from gaudi_launch.core.models.folder_lock import hold
from gaudi_launch.core.models.hub.file_choice import PARTS, choose, safe
from gaudi_launch.core.models.hub.hub_error import TOKENS
from gaudi_launch.core.models.hub.record import Fetched, RemoteFile, read_record, write_record

_log = logging.getLogger(__name__)

SOURCES = tuple(TOKENS)
_CHILD = "gaudi_launch.core.models.hub.child"
_LIST_SECONDS = 120.0
_PROBE_SECONDS = 20.0
# a transfer without a byte for this time counts as hung
_STUCK_SECONDS = 300.0
_BUSY_WAITS = (5.0, 15.0, 45.0)
_SPARE_BYTES = 1 << 30
_TURN_SECONDS = 0.2


@dataclass(frozen=True)
class Listing:
    """A repository on a hub: the exact revision and its files."""

    source: str
    repo: str
    revision: str
    files: tuple[RemoteFile, ...]
    repo_type: str = "model"


@dataclass(frozen=True)
class PullProgress:
    """The progress of a running pull in bytes and files.

    ``current`` is the file in transfer, with its own bytes.
    """

    done_bytes: int
    total_bytes: int
    done_files: int
    total_files: int
    current: str = ""
    current_bytes: int = 0
    current_total: int = 0


@dataclass(frozen=True)
class Pulled:
    """A folder as a pull left it.

    ``unread`` files have the size and time that they were verified with, and were not read again.
    """

    folder: Path
    listing: Listing
    files: tuple[RemoteFile, ...]
    fetched: int
    cleared: tuple[str, ...] = ()
    unread: int = 0


Report = Callable[[PullProgress], None]


def list_files(
    repo: str,
    source: str,
    revision: str = "",
    repo_type: str = "model",
    seconds: float = _LIST_SECONDS,
) -> Listing:
    """Ask a hub what it has.

    Raises LaunchError: MODEL for what is not there or not allowed, FAILED for a hub that does not
    answer.
    """
    endpoint = os.environ.get("HF_ENDPOINT")
    if source == "hf" and endpoint and not re.match(r"https?://[^/\s]", endpoint):
        raise LaunchError("pull.endpoint", ExitCode.USAGE, found=redact_text(endpoint))
    request = {
        "do": "list",
        "source": source,
        "repo": repo,
        "revision": revision,
        "repo_type": repo_type,
    }
    nothing: dict[str, Any] = {"error": "offline", "detail": "no answer"}
    answer = [nothing, *_ask(request, lambda: None, seconds)][-1]
    if "error" in answer:
        raise _error(answer, repo, source, revision)
    files = tuple(
        RemoteFile(str(f["path"]), int(f["size"]), str(f["digest"])) for f in answer["files"]
    )
    unsafe = [file.path for file in files if not safe(file.path)]
    if unsafe:
        raise LaunchError("pull.unsafe", ExitCode.MODEL, repo=repo, name=repr(unsafe[0]))
    return Listing(source, repo, str(answer["revision"]), files, repo_type)


def find(repo: str, revision: str = "", repo_type: str = "model") -> Listing:
    """Query both hubs at once; return the listing of the first that has the model.

    Raises the more specific one of both errors.
    """
    results: dict[str, Listing | LaunchError] = {}
    first = threading.Event()

    def ask(source: str) -> None:
        try:
            results[source] = list_files(repo, source, revision, repo_type, _PROBE_SECONDS)
        except LaunchError as error:
            results[source] = error
        if isinstance(results[source], Listing) or len(results) == len(SOURCES):
            first.set()

    for source in SOURCES:
        in_background(partial(ask, source))
    first.wait(_PROBE_SECONDS + 10)
    for result in results.values():
        if isinstance(result, Listing):
            return result
    errors = [result for result in results.values() if isinstance(result, LaunchError)]
    # a hub that knows the model but refuses it says more than one that could not be reached
    order = (
        "pull.token",
        "pull.gated",
        "pull.no_revision",
        "pull.no_repo",
        "pull.busy",
        "pull.endpoint",
        "pull.offline_mode",
    )
    offline = _error({"error": "offline", "detail": "-"}, repo, SOURCES[0], revision)
    raise min(errors, key=lambda error: [*order, error.id].index(error.id), default=offline)


def pull(
    listing: Listing,
    folder: Path,
    *,
    everything: bool = False,
    code: bool = False,
    report: Report = lambda progress: None,
) -> Pulled:
    """Bring the files of a listing into a folder; verified files stay.

    Raises LaunchError: MACHINE when the disk is too small, FAILED when another process works on the
    folder or the transfer fails (run again, it resumes where it stopped), MODEL when a file does
    not match its hash twice.
    """
    files = tuple(choose(listing.files, everything=everything, code=code))
    if not files:
        raise LaunchError("pull.nothing", ExitCode.MODEL, repo=listing.repo)
    with hold(folder, "pull"):
        return _pull(listing, folder, files, report)


def forget(listing: Listing, folder: Path) -> int:
    """Mark the files of a folder as not verified; return how many are affected.

    The next pull reads and hashes each of them again. Files for which the hub lists no hash are not
    affected.
    """
    with hold(folder, "pull"):
        record = read_record(folder)
        if record is None:
            return 0
        hashed = {file.path for file in listing.files if file.digest}
        kept = {path: known for path, known in record.files.items() if path not in hashed}
        write_record(folder, replace(record, whole=False, files=kept))
        return len(record.files) - len(kept)


def _pull(listing: Listing, folder: Path, files: tuple[RemoteFile, ...], report: Report) -> Pulled:
    record = read_record(folder) or Fetched(
        listing.repo, listing.source, listing.revision, False, {}
    )
    missing = [file for file in files if not record.has(folder, file)]
    cleared = _clear(folder, files)
    fetched = 0
    if missing:
        _check_disk(folder, missing)
        record = replace(
            record, repo=listing.repo, source=listing.source, revision=listing.revision, whole=False
        )
        write_record(folder, record)
        record, fetched = _fetch(listing, folder, files, record, report)
    write_record(folder, replace(record, whole=True))
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    return Pulled(folder, listing, files, fetched, cleared, len(files) - len(missing))


def _check_disk(folder: Path, missing: Sequence[RemoteFile]) -> None:
    there = sum(max(_partial(folder, file.path), _in_place(folder, file)) for file in missing)
    needed = sum(file.size for file in missing) - there + _SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise LaunchError(
            "pull.disk",
            ExitCode.MACHINE,
            path=str(folder),
            needed=round(needed / 2**30, 1),
            free=round(free / 2**30, 1),
        )


def _clear(folder: Path, files: Sequence[RemoteFile]) -> tuple[str, ...]:
    """Remove leftovers of other tools and killed pulls.

    These are locks, nameless parts, and parts of files that are no longer listed.
    """
    kept = {f"{file.path}.part" for file in files}
    cleared = []
    parts = folder / PARTS
    if parts.is_symlink():
        # planted in a shared folder: what is written here goes through it
        parts.unlink()
        cleared.append(parts.name)
    for path in [
        *parts.rglob("*"),
        *(folder / ".cache").rglob("*.lock"),
        *(folder / ".cache").rglob("*.incomplete"),
    ]:
        inside = parts in path.parents
        if inside and path.is_symlink():
            path.unlink(missing_ok=True)
            cleared.append(path.name)
            continue
        if not path.is_file():
            continue
        # ModelScope's library resumes from its partial file in this folder
        if inside and (
            path.relative_to(parts).as_posix() in kept or not path.name.endswith(".part")
        ):
            continue
        path.unlink(missing_ok=True)
        cleared.append(path.name)
    return tuple(cleared)


def _fetch(
    listing: Listing,
    folder: Path,
    files: Sequence[RemoteFile],
    record: Fetched,
    report: Report,
) -> tuple[Fetched, int]:
    """Bring the files that the record lacks.

    Return the record with them, and how many were not in place already.
    """
    known = dict(record.files)
    fetched = 0
    wanted = {file.path: file for file in files if not record.has(folder, file)}
    last: dict[str, Any] = {}

    def tell() -> None:
        report(_progress(folder, files, wanted))

    for wait in (*_BUSY_WAITS, None):
        last = {}
        for answer in _ask(_question(listing, folder, wanted.values()), tell, None):
            last = answer
            if answer.get("done") in wanted:
                file = wanted.pop(answer["done"])
                known[file.path] = (file.size, file.digest, int(answer["mtime"]))
                if not answer.get("in_place"):
                    fetched += 1
                record = replace(record, files=known)
                write_record(folder, record)
        if not wanted or last.get("error") != "busy" or wait is None:
            break
        time.sleep(wait)
    if wanted:
        reason = last or {"error": "other", "detail": "-"}
        raise _error(reason, listing.repo, listing.source, listing.revision)
    tell()
    return record, fetched


def _question(listing: Listing, folder: Path, wanted: Iterable[RemoteFile]) -> dict[str, Any]:
    """Return the request to the child process that transfers these files."""
    return {
        "do": "fetch",
        "source": listing.source,
        "repo": listing.repo,
        "revision": listing.revision,
        "repo_type": listing.repo_type,
        "target": str(folder),
        "files": [{"path": file.path, "size": file.size, "digest": file.digest} for file in wanted],
    }


def _progress(
    folder: Path, files: Sequence[RemoteFile], wanted: Mapping[str, RemoteFile]
) -> PullProgress:
    """Return the state of a pull whose ``wanted`` files are missing.

    Its current file is the one of them with the most bytes in place.
    """
    size, path, full_size = 0, "", 0
    for each in wanted.values():
        there = _partial(folder, each.path)
        if path == "" or there > size:
            size, path, full_size = there, each.path, each.size
    return PullProgress(
        done_bytes=sum(file.size for file in files if file.path not in wanted) + size,
        total_bytes=sum(file.size for file in files),
        done_files=len(files) - len(wanted),
        total_files=len(files),
        current=path,
        current_bytes=size,
        current_total=full_size,
    )


def _partial(folder: Path, path: str) -> int:
    """Return the bytes of a file that are present.

    The Hugging Face client resumes from ``.part``, ModelScope's library from a separate file.
    """
    parts = folder / PARTS
    theirs = (parts / f"{path}.incomplete", parts / "._____temp" / path, parts / path)
    return max(_size(each) for each in (parts / f"{path}.part", *theirs))


def _in_place(folder: Path, file: RemoteFile) -> int:
    """Return the bytes of a file that is complete in the folder but not yet verified."""
    size = _size(folder / file.path)
    return size if size == file.size else 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# message IDs of what the child process reports
_REFUSALS = {
    "no_repo": "pull.no_repo",
    "no_revision": "pull.no_revision",
    "gated": "pull.gated",
    "token": "pull.token",
    "changed": "pull.changed",
    "offline": "pull.offline",
    "offline_mode": "pull.offline_mode",
    "busy": "pull.busy",
    "stuck": "pull.stuck",
}


def _error(answer: dict[str, Any], repo: str, source: str, revision: str) -> LaunchError:
    kind = str(answer.get("error", "other"))
    why = str(answer.get("detail", "")).strip().split("\n")[0][:300]
    of_the_model = ("no_repo", "no_revision", "gated", "token", "changed")
    codes = dict.fromkeys(of_the_model, ExitCode.MODEL)
    if kind == "disk":
        return LaunchError("pull.disk_full", ExitCode.FAILED, repo=repo)
    code = codes.get(kind, ExitCode.FAILED)
    return LaunchError(
        _REFUSALS.get(kind, "pull.other"),
        code,
        repo=repo,
        source=source,
        other=next(each for each in SOURCES if each != source),
        revision=revision or "-",
        why=why,
        **TOKENS[source],
    )


def _ask(
    request: dict[str, Any], tell: Callable[[], None], seconds: float | None
) -> Iterator[dict[str, Any]]:
    """Yield the child's answers as they arrive.

    The child is waited for; it never outlives this process.
    """
    with deferred(), _child() as process:
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        lines: list[str | None] = []
        in_background(partial(_read, process, lines))
        begin = moved = time.monotonic()
        before = -1
        while True:
            while lines:
                line = lines.pop(0)
                if line is None:
                    return
                moved = time.monotonic()
                answer = _parse(line)
                if answer is not None:
                    yield answer
            tell()
            now = time.monotonic()
            size = _growth(request)
            if size != before:
                before, moved = size, now
            if seconds is not None and now - begin > seconds:
                yield {"error": "offline", "detail": f"no answer within {seconds:.0f} s"}
                return
            if now - moved > _STUCK_SECONDS:
                yield {"error": "stuck", "detail": f"{_STUCK_SECONDS:.0f}"}
                return
            pause(_TURN_SECONDS)


def _growth(request: dict[str, Any]) -> int:
    target = request.get("target")
    if not target:
        return 0
    return sum(_size(path) for path in (Path(target) / PARTS).rglob("*") if path.is_file())


def _read(process: subprocess.Popen[str], lines: list[str | None]) -> None:
    assert process.stdout is not None
    lines.extend(process.stdout)
    process.wait()
    lines.append(None)


def _parse(line: str) -> dict[str, Any] | None:
    try:
        answer = parse_json(line)
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    return answer


@contextmanager
def _child() -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", _CHILD]
    seen = ChildLog(_log, argv)
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **mirrors.read().hub_variables()},
            # Ctrl-C is ours to handle: the child's partial file must stay complete
            start_new_session=True,
            preexec_fn=guarded(),
        )
    except OSError as error:
        seen.failed(error)
        raise
    seen.started(process.pid)
    try:
        yield process
    finally:
        if process.poll() is None:
            _signal(process, signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()
        seen.ended(process.returncode)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with best_effort(_log, "close a pipe of the download"):
                    pipe.close()


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    # it may have ended between the question and the signal
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
