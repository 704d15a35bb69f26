"""The record that a conversion to Gaudi2's fp8 range leaves in its folder."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.reader import read_json

_log = logging.getLogger(__name__)

RECORD = ".gaudi-launch.json"
# a converted model's folder has the model's own name with this suffix
CONVERTED = "-G2"


def read_record(folder: Path) -> dict[str, Any]:
    """Return the record of a conversion into ``folder``.

    {} without one, or for one that cannot be read.
    """
    try:
        document = read_json(folder / RECORD)
    except (OSError, ValueError) as error:
        _log.debug("the record of a conversion is not read: %s", error)
        return {}
    return mapping(document)


def is_recorded(folder: Path) -> bool:
    """Return True if a conversion into ``folder`` was completed."""
    return read_record(folder).get("complete") is True
