"""The fields of a service's files, and which of them are valid in a damaged one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypedDict, get_args

from gaudi_launch.core.base import codec
from gaudi_launch.core.services.state.identity import Identity

# a service's files are four levels deep
_MOST_DEPTH = 32
# the largest number that a 64-bit program can have written
_MOST_NUMBER = 2**63
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
# the kernel's highest process number (include/linux/threads.h, PID_MAX_LIMIT); slots of cards
_RANGES = {"pid": range(1, 2**22 + 1), "launcher_pid": range(1, 2**22 + 1), "modules": range(1024)}


class _Phase(TypedDict):
    name: str
    begin: float
    end: float | None
    items: int


class _Warmup(TypedDict):
    warmup_seconds: dict[str, float]


class _Graphs(TypedDict):
    graphs: int


STATE: Mapping[str, Any] = {
    **dict.fromkeys(("name", "model", "engine", "url", "log", "restart", "phase", "bucket"), str),
    **dict.fromkeys(("detail", "error", "error_id", "outcome", "served", "answers"), str | None),
    **dict.fromkeys(("done", "total", "restarts", "run_time_compiles"), int),
    **dict.fromkeys(("began", "engine_began", "ended"), float),
    **dict.fromkeys(("ready_at", "left_seconds"), float | None),
    **dict.fromkeys(("pid", "launcher_pid", "status"), int | None),
    **dict.fromkeys(("launcher", "engine_process"), Identity | None),
    "permanent": bool,
    "facts": dict[str, str | float | bool | None],
    "modules": list[int],
    "phases": list[_Phase],
}
PLAN: Mapping[str, Any] = {
    "dtype": str,
    "argv": list[str],
    "env": dict[str, str],
    "cpus": str,
    "numa_nodes": list[int],
    "memory": dict[str, float],
    "cache": dict[str, Any] | None,
    "estimate": _Warmup | None,
    "buckets": _Graphs | None,
}
_FILES = {"state.json": STATE, "plan.json": PLAN}
# of these lists a wrong element is removed, not the list
_BY_ELEMENT = ("modules", "phases")


def parse(content: str) -> dict[str, Any] | None:
    """Return the JSON object of a file.

    Return None when it is not one that this program can have written.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or _too_deep(document, _MOST_DEPTH):
        return None
    return document


def _too_deep(value: Any, levels: int) -> bool:
    if levels == 0:
        return True
    if isinstance(value, dict):
        return any(_too_deep(each, levels - 1) for each in value.values())
    if isinstance(value, list):
        return any(_too_deep(each, levels - 1) for each in value)
    return False


def plain(text: str) -> str:
    """Replace control characters, lone surrogates and direction marks by U+FFFD.

    Direction marks change the order in which a terminal shows text.
    """
    return _CONTROL.sub("\ufffd", text)


def cleaned(value: Any) -> Any:
    """Return a value with plain texts only.

    A number that is out of range becomes None.
    """
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(name): cleaned(each) for name, each in value.items()}
    if isinstance(value, list):
        return [cleaned(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int | float) and not -_MOST_NUMBER < value < _MOST_NUMBER:
        return None
    return value


def trusted(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the valid content of a file of this name.

    Fields of the wrong kind are removed. Fields that this version does not know stay. ``job.json``
    is read by `read_job`, which refuses an incomplete file.
    """
    kinds = _FILES.get(name)
    if kinds is None:
        return document
    sound: dict[str, Any] = {}
    for key, value in cleaned(document).items():
        if key in _BY_ELEMENT and key in kinds:
            (element,) = get_args(kinds[key])
            elements = value if isinstance(value, list) else []
            sound[key] = [each for each in elements if _fits(key, element, each)]
        elif key not in kinds or _fits(key, kinds[key], value):
            sound[key] = value
    return sound


def _fits(name: str, kind: Any, value: Any) -> bool:
    try:
        codec.read(kind, value)
    except codec.BadRecord:
        return False
    return value is None or name not in _RANGES or value in _RANGES[name]
