"""Constants corrected by measurements of this host, with their file."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gaudi_launch.core.base import codec, paths
from gaudi_launch.core.base.reader import read_json
from gaudi_launch.core.predict.constants import constants, shipped_values
from gaudi_launch.core.predict.published import Figure
from gaudi_launch.core.predict.step_model import Generation

_log = logging.getLogger(__name__)

FILE_NAME = "learned-speed.json"
SCHEMA = 1


@dataclass(frozen=True)
class LearnedConstants:
    """A version of the constants. ``values`` are in the units of constants.csv.

    ``typical`` is exp(mean |ln(predicted / measured)|) after learning, ``before`` with the shipped
    constants; ``left_out`` counts the measurements that were too far off.
    """

    version: int
    learned_at: float
    values: Mapping[str, float]
    typical: float
    before: float
    left_out: int
    measurements: tuple[Figure, ...]

    @property
    def generations(self) -> frozenset[str]:
        """Return the hardware of the measurements: gaudi2, gaudi3 or cpu."""
        return frozenset(each.setup.generation for each in self.measurements)


def state_file() -> Path:
    """Return the file of this host's constants."""
    return paths.state_dir() / FILE_NAME


def read_learned() -> LearnedConstants | None:
    """Return the constants of this host; None where it has none that can be read."""
    path = state_file()
    try:
        stamp = path.stat().st_mtime_ns
    except OSError:
        return None
    return _read(path, stamp)


@lru_cache(maxsize=4)
def _read(path: Path, stamp: int) -> LearnedConstants | None:
    try:
        document = read_json(path)
        if document["schema"] == SCHEMA:
            return codec.read(LearnedConstants, document)
    except (OSError, ValueError, KeyError, TypeError):
        _log.debug("learned constants cannot be read", exc_info=True)
    return None


def values() -> Mapping[str, float]:
    """Return the constants' values by name, with those that this host has learned.

    In seconds, bytes per second and operations per second.
    """
    learned = read_learned()
    if learned is None:
        return shipped_values()
    shipped = constants()
    own = {
        name: value * shipped[name].scaled / shipped[name].value
        for name, value in learned.values.items()
        if name in shipped
    }
    return {**shipped_values(), **own}


def write_learned(found: LearnedConstants) -> None:
    """Replace the file atomically. Raises OSError."""
    paths.write_whole(state_file(), json.dumps({"schema": SCHEMA, **codec.write(found)}, indent=1))


def learned_for(generation: Generation) -> LearnedConstants | None:
    """Return the learned constants for this hardware, None without them."""
    found = read_learned()
    if found is not None and generation in found.generations:
        return found
    return None
