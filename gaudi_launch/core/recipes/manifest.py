"""The files of a cache directory: walk, list with checksums, compare."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from gaudi_launch.core.recipes.ledger import write_whole

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Findings:
    """The faults of a directory, as names relative to it. All empty: no fault."""

    missing: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    wrong_size: tuple[str, ...] = ()
    wrong_content: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Return True without faults that the engine would fail on.

        Unlisted files are recipes of a later run.
        """
        return not (
            self.missing or self.empty or self.wrong_size or self.wrong_content or self.foreign
        )


def _none_skipped(name: str) -> bool:
    return False


def walk(
    folder: Path, skip: Callable[[str], bool] = _none_skipped
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every non-directory below a folder: (name relative to it, lstat).

    Links are not followed. ``skip`` names entries of the top level to leave out (our files in an
    adopted flat folder).
    """
    stack = [("", os.fspath(folder))]
    while stack:
        prefix, path = stack.pop()
        try:
            entries = os.scandir(path)
        except FileNotFoundError:
            continue
        with entries:
            for entry in entries:
                if not prefix and skip(entry.name):
                    continue
                # the engine replaces its files during the walk
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        stack.append((f"{prefix}{entry.name}/", entry.path))
                    else:
                        yield prefix + entry.name, entry.stat(follow_symlinks=False)


def size_of(folder: Path, skip: Callable[[str], bool] = _none_skipped) -> tuple[int, int]:
    """Return the number of files and bytes of a directory."""
    sizes = [status.st_size for _, status in walk(folder, skip)]
    return len(sizes), sum(sizes)


def checksum(path: Path) -> str:
    """Return BLAKE2b-128 of a file's content in hex.

    It is read in blocks, so any size is possible.
    """
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


# of a file that is not listed
_UNKNOWN = (-1, "", -1)


def files_path(root: Path, key: str) -> Path:
    return root / f"{key}.files"


def write_list(
    root: Path,
    key: str,
    folder: Path,
    skip: Callable[[str], bool] = _none_skipped,
) -> tuple[int, int]:
    """List a directory's regular files with sizes and checksums; return their totals.

    The list is next to the directory, the totals are (files, bytes). Files listed before with the
    same size and modification time keep their checksum, so a second launch does not read a hundred
    gigabytes again.
    """
    known = read_list(root, key)
    lines: list[str] = []
    total = 0
    for name, status in sorted(walk(folder, skip)):
        if not S_ISREG(status.st_mode) or not status.st_size or "\n" in name or "\t" in name:
            continue
        size, digest, modified = known.get(name, _UNKNOWN)
        if (size, modified) != (status.st_size, status.st_mtime_ns):
            digest = checksum(folder / name)
        lines.append(f"{name}\t{status.st_size}\t{digest}\t{status.st_mtime_ns}\n")
        total += status.st_size
    write_whole(files_path(root, key), "".join(lines).encode("utf-8", "surrogateescape"))
    return len(lines), total


def read_list(root: Path, key: str) -> Mapping[str, tuple[int, str, int]]:
    """Return name -> (bytes, checksum, modification time in ns).

    Incomplete lines are left out.
    """
    listed: dict[str, tuple[int, str, int]] = {}
    for name, rest in _lines(root, key).items():
        with contextlib.suppress(ValueError):
            size, digest, modified = rest.split("\t")
            listed[name] = (int(size), digest, int(modified))
    return listed


def _lines(root: Path, key: str) -> dict[str, str]:
    """Return name -> the rest of its line, not parsed.

    A hundred thousand of them are read before every launch.
    """
    try:
        text = files_path(root, key).read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return {}
    return {
        name: rest for name, tab, rest in (line.partition("\t") for line in text.split("\n")) if tab
    }


def verify(
    root: Path,
    key: str,
    folder: Path,
    *,
    quick: bool,
    skip: Callable[[str], bool] = _none_skipped,
) -> Findings:
    """Compare a directory with its list: names, sizes, and contents.

    ``quick``: without contents.
    """
    listed = _lines(root, key)
    empty: list[str] = []
    wrong_size: list[str] = []
    wrong_content: list[str] = []
    foreign: list[str] = []
    unlisted: list[str] = []
    for name, status in walk(folder, skip):
        line = listed.pop(name, None)
        size = status.st_size
        if not S_ISREG(status.st_mode):
            foreign.append(name)
        elif not size:
            empty.append(name)
        elif line is None:
            unlisted.append(name)
        elif not line.startswith(f"{size}\t"):
            wrong_size.append(name)
        elif not quick and checksum(folder / name) != line.split("\t")[1]:
            wrong_content.append(name)
    names = (list(listed), empty, wrong_size, wrong_content, foreign, unlisted)
    return Findings(*(tuple(sorted(group)) for group in names))
