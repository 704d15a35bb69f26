"""An archive for a support case: facts, findings, versions, last plans and logs.

What is not known to be harmless is not included: text stays where each of its parts is a term of
two lists (`kept_words.txt`; `bundle_words.txt`: this program's texts, documents and names, and
those of functions, classes and modules of vLLM, Ray and web servers) or a short number. Names
(host, users, home folders), addresses and serial numbers are replaced by placeholders that stay the
same within one bundle, unless they are requested.
"""

from __future__ import annotations

import contextlib
import getpass
import io
import json
import logging
import os
import re
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from gaudi_launch.core.base import paths
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.base.redact import REMOVED, kept_words, redact_text
from gaudi_launch.core.base.redact_values import redact_document
from gaudi_launch.core.base.version import VERSION

_log = logging.getLogger(__name__)

# user and host names that identify no person: removing them would spoil the text
_COMMON_NAMES = ("", "root", "localhost")
_LOGS, _PLANS, _TAIL = 5, 5, 1 << 20
_GROUP = "[0-9a-f]{1,4}"
# mail, homes, and addresses but those of every machine. IPv6: four groups at least or a double
# colon, as a time and a PCI address have three
_NAMES = (
    # not engine@1.2.3
    ("mail", r"(?<![\w.+-])[\w.+-]{1,64}@(?!\d+\.\d+\.\d+(?![\w.-]))[\w-]{1,63}\.[\w.-]{1,190}"),
    ("user", r"(?:(?<=/home/)|(?<=/Users/))[^/\s\"':]{1,64}"),
    ("mac", r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])"),
    # not 1.22.1-fw-61.4.2.1
    ("ip", r"(?<![\d.])(?<!\d-fw-)(?!127\.|0\.0\.0\.0|255\.)(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"),
    ("ip", rf"(?<![\w:])(?:{_GROUP}:){{3,7}}{_GROUP}(?![\w:])"),
    ("ip", rf"(?<![\w:])(?:{_GROUP}:){{1,7}}(?::{_GROUP}){{1,7}}(?![\w:])"),
)
# pieces of a text; the parts of one: an acronym, letters, a number, what is between them
_PIECE = r"[^\s\"'`\[\]{}(),;:=<>\\&|?/\u3000-\u303f\uff00-\uffef]+"
_PART = re.compile(
    r"[KMGT]iB|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[\u2e80-\u9fff]+|[^A-Za-z0-9\u2e80-\u9fff]+"
)
_JOINTS = "-_.+@%!*$#~^\x1b"
# of a path, or of base64
_BETWEEN = re.compile(r"\[removed\]/[^\s\"',]{0,512}/\[removed\]")
# stays, whatever it is: a placeholder, an option, a variable before its value
_NAME = (
    r"\[[a-z]{2,8}-\d{1,6}\]|(?<![^\s\"'])-(?:[A-Za-z]|-[a-z][a-z-]{1,40})(?![^\s=\"',])"
    r"|\b[A-Z][A-Z_]{2,40}(?==[^=])"
)
_NAME_OR_PIECE = re.compile(f"({_NAME})|{_PIECE}")
# digits of a piece, of a number, of one after letters (gaudi122); random text has short parts
_MOST_DIGITS, _MOST_PLAIN_DIGITS, _MOST_INNER_DIGITS, _MOST_SHORT = 10, 7, 3, 3
_SHORTEST = 3
_PARTED = frozenset("/\\&|?")


@lru_cache(maxsize=1)
def _terms() -> frozenset[str]:
    words = Path(__file__).with_name("bundle_words.txt").read_text(encoding="utf-8")
    return kept_words() | frozenset(words.split())


@lru_cache(maxsize=1 << 16)
def _is_known(piece: str) -> bool:
    """Return True for what is made of known terms and short numbers."""
    before, short = "", 0
    for match in _PART.finditer(piece):
        part = match[0]
        if part[0].isdigit():
            most = _MOST_INNER_DIGITS if before.isalpha() else _MOST_PLAIN_DIGITS
            known = len(part) <= most
        elif part.isascii() and part.isalpha():
            short += len(part) < 3
            # a unit, as in 8B or power_w
            alone = not before.isalpha() and not piece[match.end() : match.end() + 1].isalnum()
            known = part.lower() in _terms() or (len(part) == 1 and alone)
        else:
            known = part[0] >= "\u2e80" or (not part.strip(_JOINTS) and len(set(part)) < 3)
        if not known or short > _MOST_SHORT:
            return False
        before = part
    return sum(map(str.isdigit, piece)) <= _MOST_DIGITS


def _shown(piece: re.Match[str]) -> str:
    text, begin, end = piece.string, piece.start(), piece.end()
    # too short for a secret, and no part of one
    is_part = text[max(0, begin - 1) : begin] in _PARTED or text[end : end + 1] in _PARTED
    is_short = end - begin <= _SHORTEST and not is_part
    return piece[0] if piece[1] or is_short or _is_known(piece[0]) else REMOVED


_PLAIN_MAIL = re.compile(r"[a-z.-]+@[a-z.-]+")


@dataclass
class Redactor:
    """Keeps known terms, and replaces names unless ``keep_names``."""

    keep_names: bool = False
    names: tuple[str, ...] = ()
    _known: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        text = _NAME_OR_PIECE.sub(_shown, self._without_names(redact_text(text)))
        return self._named(_BETWEEN.sub(REMOVED, text))

    def _named(self, text: str) -> str:
        """Return the text with names in place of their placeholders, where they are kept."""
        if not self.keep_names:
            return text
        # what looks like an address of mail may be a password
        names = {
            a: name
            for name, a in self._known.items()
            if a[:5] != "[mail" or _PLAIN_MAIL.fullmatch(name)
        }
        return re.sub(_NAME, lambda m: names.get(m[0], m[0]), text)

    def _without_names(self, text: str) -> str:
        """Return the text with mail addresses, homes, addresses and given names replaced."""
        given = [("name", rf"(?<![\w-]){re.escape(name)}(?![\w-])") for name in self.names]
        for kind, pattern in (*_NAMES, *given):
            text = re.sub(pattern, partial(self._alias, kind), text, flags=re.IGNORECASE)
        return text

    def document(self, value: Any) -> Any:
        """Return a JSON value of which the same is known."""
        return self._document(redact_document(value))

    def _document(self, value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            shown: dict[str, Any] = {}
            for name, inner in value.items():
                known = self.text(str(name))
                # two names that are removed are still two
                known = f"{known}-{len(shown)}" if known in shown else known
                shown[known] = self._document(inner, str(name))
            return shown
        if isinstance(value, list):
            return [self._document(inner, key) for inner in value]
        if not isinstance(value, str):
            return value
        if value and key in ("hostname", "user", "serial", "uuid"):
            return self._named(self._alias(key, [value]))
        return self.text(value)

    def _alias(self, kind: str, found: re.Match[str] | list[str]) -> str:
        return self._known.setdefault(found[0], f"[{kind}-{len(self._known) + 1}]")


def redactor_of(hostname: str | None, *, keep_names: bool = False) -> Redactor:
    """Return what removes secrets, and the names of host and user unless kept."""
    user = ""
    with contextlib.suppress(KeyError, OSError):
        user = getpass.getuser()
    # a short name would turn the text into brackets
    names = (n for n in (hostname, user) if n and n not in _COMMON_NAMES and len(n) > 2)
    return Redactor(keep_names, tuple(names))


def contents(
    host: Mapping[str, Any],
    config: Mapping[str, Any],
    report: Mapping[str, Any],
    redactor: Redactor,
) -> dict[str, str]:
    """Return the files of the bundle by name, redacted."""
    import platform

    versions = {
        "gaudi_launch": VERSION,
        "python": platform.python_version(),
        "system": platform.platform(),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    documents = {
        "host.json": host,
        "config.json": config,
        "findings.json": report,
        "versions.json": versions,
    }
    files = {name: _json(redactor.document(document)) for name, document in documents.items()}
    services = paths.state_dir()
    for kind, pattern, most in (("plans", "*plan*.json", _PLANS), ("logs", "*.log", _LOGS)):
        for number, path in enumerate(_newest(services, pattern, most), 1):
            tail = _tail(path)
            if tail is not None:
                files[f"{kind}/{number}-{redactor.text(path.name)}"] = _redacted(
                    tail, kind, redactor
                )
    crash = _tail(services / "last-crash.txt")
    if crash is not None:
        files["logs/last-crash.txt"] = redactor.text(crash)
    return files


def _json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _redacted(text: str, kind: str, redactor: Redactor) -> str:
    if kind == "plans":
        with contextlib.suppress(ValueError):
            return _json(redactor.document(parse_json(text)))
    return redactor.text(text)


def _newest(folder: Path, pattern: str, most: int) -> list[Path]:
    found = []
    for path in folder.rglob(pattern):
        try:
            if path.is_file() and not path.is_symlink():
                found.append((path.stat().st_mtime, path))
        except OSError as error:
            _log.debug("a file is left out: %s", error)
    return [path for _, path in sorted(found, reverse=True)[:most]]


def _tail(path: Path) -> str | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        _log.debug("a log is left out: %s", error)
        return None
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(handle).st_size
        file.seek(max(0, size - _TAIL))
        return file.read(_TAIL).decode("utf-8", errors="replace")


def write(path: Path, files: Mapping[str, str]) -> None:
    """Write the archive atomically, readable by its owner only.

    Raises LaunchError: USAGE for a symbolic link or another ending, FAILED when it cannot be
    written.
    """
    if not path.name.endswith((".tar.gz", ".tgz")):
        raise LaunchError("doctor.bundle.name", ExitCode.USAGE, path=str(path))
    if path.is_symlink():
        raise LaunchError("doctor.bundle.link", ExitCode.USAGE, path=str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        handle = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            with os.fdopen(handle, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
                for name, text in files.items():
                    content = text.encode("utf-8")
                    entry = tarfile.TarInfo(f"gaudi-launch-bundle/{name}")
                    entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
                    archive.addfile(entry, io.BytesIO(content))
            paths.put(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise LaunchError(
            "doctor.bundle.write", ExitCode.FAILED, path=str(path), reason=reason
        ) from None
