"""The environment variables that an engine version reads, each with its reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from gaudi_launch import paths


@cache
def variable_table(name: str) -> Mapping[str, str]:
    """Return ``repo@commit:path`` by variable; the result is empty for no name.

    The files ``profiles/engines/variables/NAME.json`` are made by ``scripts/engine_variables.py``
    from a checkout of the engine.
    """
    if not name:
        return {}
    path = paths.profiles_dir() / "engines" / "variables" / f"{name}.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    sources = document["sources"]
    found = {}
    for variable, place in document["variables"].items():
        package = place.partition("/")[0]
        found[variable] = f"{sources[package]}:{place}"
    return found
