"""An archive for a support case: facts, findings, versions, last plans and logs.

Secrets are never included. The values of unknown variables, options and keys keep known terms only.
Names (host, users, home folders), addresses and serial numbers are replaced by placeholders that
stay the same within one bundle, unless they are requested.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaudi_launch import paths
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.reader import parse_json
from gaudi_launch.redact import redact_document, redact_text
from gaudi_launch.version import VERSION

_log = logging.getLogger(__name__)

_LOGS, _PLANS, _TAIL = 5, 5, 1 << 20
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_IPV6 = re.compile(
    r"(?<![\w:])(?:[0-9a-f]{1,4}:){2,7}(?::?[0-9a-f]{1,4}){1,7}(?![\w:])|(?<![\w:])fe80::[0-9a-f:]+",
    re.I,
)
_MAC = re.compile(r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])", re.I)
_HOME = re.compile(r"(/home/|/Users/)([^/\s\"':]{1,64})")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,190}")


@dataclass
class Redactor:
    """Removes secrets and unknown values, and names unless ``keep_names``."""

    keep_names: bool = False
    names: tuple[str, ...] = ()
    _known: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        text = redact_text(text, unknown_goes=True)
        return text if self.keep_names else self._names(text)

    def _names(self, text: str) -> str:
        """Return the text with mail addresses, homes, addresses and given names replaced."""
        text = _MAIL.sub(lambda m: self._alias("mail", m[0]), text)
        text = _HOME.sub(lambda m: m[1] + self._alias("user", m[2]), text)
        text = _MAC.sub(lambda m: self._alias("mac", m[0]), text)
        text = _IPV4.sub(
            lambda m: (
                m[0] if m[0].startswith(("127.", "0.0.0.0", "255.")) else self._alias("ip", m[0])
            ),
            text,
        )
        text = _IPV6.sub(lambda m: self._alias("ip", m[0]), text)
        for name in self.names:
            text = re.sub(
                rf"(?<![\w-]){re.escape(name)}(?![\w-])", lambda m: self._alias("name", m[0]), text
            )
        return text

    def document(self, value: Any) -> Any:
        """Return a JSON value without secrets and, unless they are kept, without names."""
        redacted = redact_document(value, unknown_goes=True)
        if self.keep_names:
            return redacted
        return self._without_names(redacted)

    def _without_names(self, value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            return {
                self._names(str(name)): self._without_names(inner, str(name))
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self._without_names(inner) for inner in value]
        if not isinstance(value, str):
            return value
        if value and key in ("hostname", "user", "serial", "uuid"):
            return self._alias(key, value)
        return self._names(value)

    def _alias(self, kind: str, word: str) -> str:
        return self._known.setdefault(word, f"[{kind}-{len(self._known) + 1}]")


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
    files = {
        name: json.dumps(redactor.document(document), ensure_ascii=False, indent=1) + "\n"
        for name, document in documents.items()
    }
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


def _redacted(text: str, kind: str, redactor: Redactor) -> str:
    if kind == "plans":
        try:
            return (
                json.dumps(redactor.document(parse_json(text)), ensure_ascii=False, indent=1) + "\n"
            )
        except ValueError:
            pass
    return redactor.text(text)


def _newest(folder: Path, pattern: str, most: int) -> list[Path]:
    found = []
    for path in folder.rglob(pattern) if folder.is_dir() else ():
        try:
            if path.is_file() and not path.is_symlink():
                found.append((path.stat().st_mtime, path))
        except OSError as error:
            _log.debug("a file is left out: %s", error)
            continue
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
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise LaunchError(
            "doctor.bundle.write", ExitCode.FAILED, path=str(path), reason=reason
        ) from None
