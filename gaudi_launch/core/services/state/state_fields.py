"""The fields of a service's files.

Wrong values of a damaged file are dropped before anything reads it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from gaudi_launch.core.base.json_values import is_number

Check = Callable[[Any], bool]

# a service's files are four levels deep
_MOST_DEPTH = 32
# the largest number that a 64-bit program can have written
_MOST_NUMBER = 2**63
# the kernel's highest process number (include/linux/threads.h, PID_MAX_LIMIT)
_MOST_PID = 2**22
_MOST_MODULES = 1024
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


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
    if isinstance(value, int | float) and not _is_number(value):
        return None
    return value


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return isinstance(value, bool)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return -_MOST_NUMBER < value < _MOST_NUMBER


def count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def text(value: Any) -> bool:
    return isinstance(value, str)


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def pid(value: Any) -> bool:
    return count(value) and 0 < value <= _MOST_PID


def module(value: Any) -> bool:
    return count(value) and 0 <= value < _MOST_MODULES


def optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def many(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(check(each) for each in value)


def mapping(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(check(each) for each in value.values())


def record(**fields: Check) -> Check:
    """Return a check for an object with these fields, and possibly others."""

    def check(value: Any) -> bool:
        if not isinstance(value, dict) or not fields.keys() <= value.keys():
            return False
        return all(each(value[name]) for name, each in fields.items())

    return check


_PROCESS = optional(record(pid=pid, ticks=count, boot=text))
_PHASE = record(name=text, begin=is_number, end=optional(is_number), items=count)
_ESTIMATE = record(warmup_seconds=record(low=is_number, high=is_number))

STATE: Mapping[str, Check] = {
    **dict.fromkeys(("name", "model", "engine", "url", "log", "restart", "phase", "bucket"), text),
    **dict.fromkeys(("detail", "error", "error_id", "outcome"), optional(text)),
    **dict.fromkeys(("served", "answers"), optional(text)),
    **dict.fromkeys(("done", "total", "restarts", "run_time_compiles"), count),
    **dict.fromkeys(("began", "engine_began", "ended"), is_number),
    **dict.fromkeys(("ready_at", "left_seconds"), optional(is_number)),
    **dict.fromkeys(("pid", "launcher_pid"), optional(pid)),
    **dict.fromkeys(("launcher", "engine_process"), _PROCESS),
    "status": optional(count),
    "permanent": flag,
    "facts": mapping(lambda value: text(value) or is_number(value) or flag(value) or value is None),
}
# of these lists a wrong element is removed, not the list
LISTS: Mapping[str, Check] = {"modules": module, "phases": _PHASE}
PLAN: Mapping[str, Check] = {
    "dtype": text,
    "argv": many(text),
    "env": mapping(text),
    "cpus": text,
    "numa_nodes": many(count),
    "memory": mapping(is_number),
    "cache": optional(mapping(lambda value: True)),
    "estimate": optional(_ESTIMATE),
    "buckets": optional(record(graphs=count)),
}
FILES: Mapping[str, Mapping[str, Check]] = {"state.json": STATE, "plan.json": PLAN}


def believed(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the valid content of a file of this name.

    Fields of the wrong kind are removed. Fields that this version does not know stay. ``job.json``
    is read by `ServiceJob.from_json`, which refuses an incomplete file.
    """
    checks = FILES.get(name)
    if checks is None:
        return document
    sound: dict[str, Any] = {}
    for key, value in cleaned(document).items():
        check = checks.get(key)
        element = LISTS.get(key) if checks is STATE else None
        if element is not None:
            sound[key] = (
                [each for each in value if element(each)] if isinstance(value, list) else []
            )
        elif check is None or check(value):
            sound[key] = value
    return sound
