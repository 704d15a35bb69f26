"""The record of a cache directory: a small JSON ledger and a list of its files.

The engine owns the directory's files; this program owns the ledger (``KEY.json``) and the file list
(``KEY.files``: name, size and checksum per line). Both are replaced atomically.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.recipes.key import KeyParts
from gaudi_launch.core.recipes.sharing import share

SCHEMA = 1


class LedgerError(Exception):
    """A damaged ledger; the text is the reason."""


@dataclass(frozen=True)
class Ledger:
    """The facts of one cache directory.

    Times are seconds since the epoch, durations seconds, sizes bytes. ``folder`` is the directory's
    name under the root (``.`` for an adopted flat folder). ``complete`` is False from the first
    byte of a fill until its warm-up ended. ``buckets`` were warm when it ended.
    """

    parts: KeyParts
    folder: str
    complete: bool = False
    buckets: Buckets = field(default_factory=lambda: Buckets([], []))
    num_blocks: int | None = None
    created: float = 0.0
    last_used: float = 0.0
    filled_seconds: tuple[float, ...] = ()
    used_seconds: tuple[float, ...] = ()
    files: int = 0
    bytes: int = 0

    @property
    def key(self) -> str:
        return self.parts.key

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "key": self.key,
            **codec.write(self),
        }

    @classmethod
    def from_json(cls, document: Any) -> Ledger:
        """Return the ledger. Raises LedgerError for a document of another schema."""
        if not isinstance(document, dict):
            raise LedgerError("it is not a JSON object")
        if document.get("schema") != SCHEMA:
            raise LedgerError(
                f"its schema is {document.get('schema')!r}, this program reads {SCHEMA}"
            )
        try:
            ledger = codec.read(cls, document)
        except codec.BadRecord as error:
            raise LedgerError(f"a field is missing or of the wrong kind ({error})") from None
        if document.get("key") != ledger.key:
            raise LedgerError(
                f"its key {document.get('key')!r} is not that of its parts ({ledger.key})"
            )
        # a ledger from elsewhere must not point outside its root
        if ledger.folder not in (".", ledger.key):
            raise LedgerError(f"its folder {ledger.folder!r} is neither '.' nor its key")
        if any(len(each) != 3 for each in (*ledger.buckets.prompt, *ledger.buckets.decode)):
            raise LedgerError("a bucket has not three numbers")
        return ledger


def ledger_path(root: Path, key: str) -> Path:
    return root / f"{key}.json"


def read_ledger(root: Path, key: str) -> Ledger | None:
    """Return the ledger of a key; None when there is none.

    Raises LedgerError when it is damaged.
    """
    try:
        document = read_json(ledger_path(root, key))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LedgerError(str(error.strerror or error)) from None
    except ValueError:
        raise LedgerError("its JSON is incomplete or invalid") from None
    return Ledger.from_json(document)


def write_ledger(root: Path, ledger: Ledger) -> None:
    """Replace the ledger atomically.

    Raises OSError (disk full, read-only); the old one is then unchanged.
    """
    write_whole(
        ledger_path(root, ledger.key), json.dumps(ledger.to_json(), indent=1).encode() + b"\n"
    )


def touched(ledger: Ledger, now: float) -> Ledger:
    """Return the ledger with a new time of last use.

    A clock that jumped back never moves it back.
    """
    return replace(ledger, last_used=max(ledger.last_used, now))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old or the new content, never a part.

    Also after power loss.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes it 0600; a cache is shared by the users of a machine as its folder is
        Path(name).chmod(0o644)
        share(Path(name), path.parent)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
