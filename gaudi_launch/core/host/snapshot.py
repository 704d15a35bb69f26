"""A Host as JSON (schema 1), to plan on another machine.

CPU lists are written as the kernel writes them.

The document may also carry a ``config`` object (the doctor's view of the machine), which passes
through.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.host.cpus import format_cpus, parse_cpus
from gaudi_launch.core.host.hardware import Host

KIND = "gaudi-launch snapshot"
# written as "0-39,80-119" instead of eighty numbers
_CPU_LISTS = frozenset({"cpus"})
# what counts cards goes through all numbers up to the largest
_MOST_MODULE = 1023
_KINDS = {
    int: "an integer",
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def to_json(host: Host, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the snapshot document of a machine."""
    document: dict[str, Any] = {"schema": 1, "kind": KIND, "host": _write(host)}
    if config is not None:
        document["config"] = dict(config)
    return document


def from_json(document: object) -> Host:
    """Return the machine of a snapshot document.

    Raises LaunchError (USAGE) naming the first field that is missing or of another kind.
    """
    if not isinstance(document, dict):
        raise _bad("kind", f"'{KIND}'", document)
    if document.get("kind") != KIND:
        raise _bad("kind", f"'{KIND}'", document.get("kind"))
    if document.get("schema") != 1:
        raise _bad("schema", "1", document.get("schema"))
    host: Host = _read(Host, document.get("host"), "host")
    for number, card in enumerate(host.cards):
        for name, found in (("index", card.index), ("module", card.module)):
            if found is not None and not 0 <= found <= _MOST_MODULE:
                raise _bad(f"host.cards[{number}].{name}", f"0 to {_MOST_MODULE}", found)
    return host


def config_of(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the ``config`` object that a snapshot carries, None if it carries none."""
    config = document.get("config")
    if not isinstance(config, dict):
        return None
    return config


def write_record(record: Any) -> Any:
    """Return a frozen record of plain fields as JSON.

    Records of other packages that are part of a snapshot use it too.
    """
    return _write(record)


def read_record(kind: type, value: object, where: str) -> Any:
    """Return a record read from what `write_record` returned."""
    return _read(kind, value, where)


def _write(value: Any) -> Any:
    if is_dataclass(value):
        shown: dict[str, Any] = {}
        for field in fields(value):
            inner = getattr(value, field.name)
            if field.name in _CPU_LISTS:
                shown[field.name] = format_cpus(inner)
            elif field.name == "cpu_siblings":
                shown[field.name] = {str(cpu): format_cpus(core) for cpu, core in inner.items()}
            else:
                shown[field.name] = _write(inner)
        return shown
    if isinstance(value, Mapping):
        return {str(key): _write(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [_write(inner) for inner in value]
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, value: object, where: str) -> Any:
    """Return ``value`` as this type; only types of record fields are known."""
    if is_dataclass(kind) and isinstance(kind, type):
        return _read_record(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        inner_kind, _ = sorted(arguments, key=lambda each: each is type(None))
        return _read(inner_kind, value, where)
    if origin is tuple:
        return tuple(
            _read(arguments[0], inner, f"{where}[{number}]")
            for number, inner in enumerate(_checked(list, value, where))
        )
    if origin is Mapping:
        return {
            key: _read(arguments[1], inner, f"{where}.{key}")
            for key, inner in _checked(dict, value, where).items()
        }
    return _checked(kind, value, where)


def _checked(kind: type, value: Any, where: str) -> Any:
    """Return ``value``, which must be of this JSON type."""
    # JSON's true is a number to Python
    truth_as_number = kind is int and isinstance(value, bool)
    if truth_as_number or not isinstance(value, kind):
        raise _bad(where, _KINDS.get(kind, kind.__name__), value)
    return value


def _read_record(kind: type, value: object, where: str) -> Any:
    known = _hints(kind)
    # a later release may write more fields; they are not ours to judge
    try:
        fields = {
            name: _read_field(name, known[name], inner, f"{where}.{name}")
            for name, inner in _checked(dict, value, where).items()
            if name in known
        }
        return kind(**fields)
    except TypeError as error:
        raise _bad(where, "all its fields", str(error)) from None


def _read_field(name: str, kind: Any, value: object, where: str) -> Any:
    if name in _CPU_LISTS:
        return parse_cpus(_read(str, value, where))
    if name == "cpu_siblings":
        lists = _read(Mapping[str, str], value, where)
        if not all(re.fullmatch("[0-9]{1,7}", cpu) for cpu in lists):
            raise _bad(where, "CPU numbers as names", ", ".join(lists)[:60])
        return {int(cpu): parse_cpus(core) for cpu, core in lists.items()}
    return _read(kind, value, where)


def _bad(where: str, expected: str, found: object) -> LaunchError:
    return LaunchError(
        "host.snapshot_field",
        ExitCode.USAGE,
        where=where,
        expected=expected,
        found=repr(found)[:80],
    )
