"""An engine version's options: spellings, numbers of values, secrets.

The engine itself is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from gaudi_launch.core.base.reader import shipped_json

# the number of values of an option, as argparse writes it; "0": a bare flag
Count = Literal["0", "1", "?", "+"]


@dataclass(frozen=True)
class EngineOption:
    """One option by its first long name.

    ``aliases`` are other spellings, ``off`` those that turn it off (``--no-x``). ``appends``: a
    repeat adds a value and replaces none. ``secret``: its value is a secret, and ``variable`` is
    what the engine reads instead. ``registered`` are the names that this version has for its value,
    where plans depend on them.
    """

    name: str
    count: Count = "1"
    aliases: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    appends: bool = False
    secret: bool = False
    variable: str = ""
    registered: tuple[str, ...] = ()


# what is assumed of an option that a table does not have
UNKNOWN = EngineOption("")


@dataclass(frozen=True, eq=False)
class OptionTable:
    """All options of one engine version.

    An empty table has none and reads every option by its form.
    """

    name: str = ""
    options: tuple[EngineOption, ...] = ()
    spellings: Mapping[str, EngineOption] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        found = {}
        for option in self.options:
            for spelling in (option.name, *option.aliases, *option.off):
                found[spelling] = option
        object.__setattr__(self, "spellings", found)


GENERIC = OptionTable()
# the table of upstream vLLM, for engines that are a plugin or a build of it
UPSTREAM = "vllm-upstream"
# the vLLM of which that table is exactly
UPSTREAM_VERSION = "0.32.0"


@cache
def option_table(name: str) -> OptionTable:
    """Return the shipped table ``profiles/engines/options/NAME.json``.

    Return an empty table for no name.
    """
    if not name:
        return GENERIC
    document = shipped_json("engines", "options", f"{name}.json")
    return OptionTable(name, tuple(_options(document["options"])))


def _options(rows: Mapping[str, Mapping[str, object]]) -> Iterable[EngineOption]:
    for name, row in rows.items():
        yield EngineOption(
            name,
            count=str(row.get("values", "1")),  # type: ignore[arg-type]
            aliases=tuple(row.get("aliases", ())),  # type: ignore[arg-type]
            off=tuple(row.get("off", ())),  # type: ignore[arg-type]
            appends=bool(row.get("appends")),
            secret="secret" in row,
            variable=str(row.get("secret", "")),
            registered=tuple(row.get("registered", ())),  # type: ignore[arg-type]
        )


@cache
def variable_table(name: str) -> Mapping[str, str]:
    """Return ``repo@commit:path`` by variable; the result is empty for no name.

    The files ``profiles/engines/variables/NAME.json`` are made by ``scripts/engine_variables.py``
    from a checkout of the engine.
    """
    if not name:
        return {}
    document = shipped_json("engines", "variables", f"{name}.json")
    sources = document["sources"]
    found = {}
    for variable, place in document["variables"].items():
        package = place.partition("/")[0]
        found[variable] = f"{sources[package]}:{place}"
    return found
