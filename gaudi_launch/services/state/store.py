"""What is written down about a service: one folder each under the state directory, files replaced whole."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.paths import state_dir

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", re.ASCII)
SCHEMA = 1


def services_dir() -> Path:
    return state_dir() / "services"


def is_name(name: str) -> bool:
    """Letters, digits, dot, dash, underscore; a letter or digit first."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """A service's name. Raises LaunchError (USAGE) when it cannot be one."""
    if not is_name(name):
        raise LaunchError("serve.bad_name", ExitCode.USAGE, found=name)
    return name


def default_name(model: str, port: str) -> str:
    """A name from the model's last part and the port, which no other service on this machine has."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").rsplit("/", 1)[-1]).strip("-._") or "model"
    return f"{base[:50]}-{port}"


def service_dir(name: str) -> Path:
    return services_dir() / check_name(name)


def make_dir(name: str) -> Path:
    """Make a service's folder, for its user only. Raises LaunchError (FAILED)."""
    folder = service_dir(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        why = error.strerror or str(error)
        raise LaunchError("serve.state_folder", ExitCode.FAILED, path=str(folder), why=why) from None
    return folder


def write(folder: Path, name: str, document: Mapping[str, Any]) -> bool:
    """Replace one JSON file of a service; was it replaced? A full disk loses the news, never the old file."""
    content = json.dumps({"schema": SCHEMA, **document}, ensure_ascii=False, indent=1)
    part = ""
    try:
        handle, part = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        Path(part).replace(folder / name)
    except OSError:
        if part:
            Path(part).unlink(missing_ok=True)
        return False
    return True


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """One JSON file of a service; None when it is missing or not whole."""
    try:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
