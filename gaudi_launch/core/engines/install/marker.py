"""The marker of a complete environment: the versions that are in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from gaudi_launch.core.base.reader import read_json

_log = logging.getLogger(__name__)

MARKER = "gaudi-launch.json"


def marker_of(folder: Path) -> dict[str, str] | None:
    """Return the content of the marker of a complete environment.

    Return None for one that is not complete.
    """
    try:
        found = read_json(folder / MARKER)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.debug("a marker cannot be read: %s", error)
        # it exists and cannot be read: nothing shows that the environment is not complete
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): str(value) for name, value in found.items()}


def is_whole(folder: Path, wanted: Mapping[str, str]) -> bool:
    """Return True if this folder was completed by this recipe, by its marker."""
    found = marker_of(folder)
    return found is not None and all(found.get(name) == value for name, value in wanted.items())


def mark(folder: Path, content: dict[str, str]) -> None:
    """Write the marker of a finished folder."""
    (folder / MARKER).write_text(json.dumps(content), encoding="utf-8")
