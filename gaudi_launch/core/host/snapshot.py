"""A Host as JSON (schema 1), to plan on another machine.

CPU lists are written as the kernel writes them: "0-39,80-119" instead of eighty numbers.

The document may also carry a ``config`` object (the doctor's view of the machine), which passes
through.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

from gaudi_launch.core.base import codec
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.host.cpus import format_cpus, parse_cpus
from gaudi_launch.core.host.hardware import Host

T = TypeVar("T")

KIND = "gaudi-launch snapshot"
# what counts cards goes through all numbers up to the largest
_MOST_MODULE = 1023


def to_json(host: Host, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the snapshot document of a machine."""
    written = codec.write(host)
    for part in (*written["cards"], *written["numa_nodes"]):
        part["cpus"] = format_cpus(part["cpus"])
    siblings = written["cpu_siblings"]
    written["cpu_siblings"] = {cpu: format_cpus(core) for cpu, core in siblings.items()}
    document: dict[str, Any] = {"schema": 1, "kind": KIND, "host": written}
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
    host = read_part(Host, _with_numbers(document.get("host")), "host")
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


def read_part(kind: type[T], document: object, where: str) -> T:
    """Return a record that is part of a snapshot. Raises LaunchError (USAGE)."""
    try:
        return codec.read(kind, document)
    except codec.BadRecord as error:
        raise LaunchError(
            "host.snapshot_field",
            ExitCode.USAGE,
            where=where + error.place,
            expected=error.expected,
            found=error.found,
        ) from None


def _with_numbers(host: object) -> object:
    """Return a host's document with the numbers of those CPU lists that are texts."""
    read = copy.deepcopy(host)
    found = mapping(read)
    parts = [mapping(each) for name in ("cards", "numa_nodes") for each in array(found.get(name))]
    lists = [(part, "cpus") for part in parts]
    siblings = mapping(found.get("cpu_siblings"))
    for place, name in (*lists, *((siblings, cpu) for cpu in siblings)):
        if isinstance(text := place.get(name), str):
            place[name] = parse_cpus(text)
    return read


def _bad(where: str, expected: str, found: object) -> LaunchError:
    return LaunchError(
        "host.snapshot_field",
        ExitCode.USAGE,
        where=where,
        expected=expected,
        found=repr(found)[:80],
    )
