"""The faults of ``serve --engine simulated --fault``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.planning.parse import read_time

# the time after the warm-up where none is given, in seconds
_DEFAULT_SECONDS = {
    "card-lost": 60.0,
    "slow-card": 0.0,
    "hang": 60.0,
    "crash": 60.0,
    "compile": 0.0,
    "oom": 60.0,
}
KINDS = tuple(_DEFAULT_SECONDS)
_WITH_CARD = ("card-lost", "slow-card")
_MOST_SECONDS = 86_400.0
_FAULT = re.compile(r"(?P<kind>[a-z-]+)(=(?P<module>[0-9]{1,3}))?(@(?P<time>[0-9a-z.]+))?")


@dataclass(frozen=True)
class CardFault:
    """One fault: its kind, seconds after the warm-up, and its card's module ID."""

    kind: str
    after: float
    module: int | None = None


def read_fault(text: str) -> CardFault:
    """Return the fault of ``KIND[=MODULE][@TIME]``, as ``card-lost@120s``.

    Raises LaunchError (USAGE).
    """
    found = _FAULT.fullmatch(text.strip())
    kind = found["kind"] if found else ""
    if found is None or kind not in KINDS:
        raise LaunchError("simulated.fault", ExitCode.USAGE, found=text, kinds=", ".join(KINDS))
    module = None if found["module"] is None else int(found["module"])
    if module is not None and kind not in _WITH_CARD:
        raise LaunchError(
            "simulated.fault_no_card", ExitCode.USAGE, found=text, kinds=", ".join(_WITH_CARD)
        )
    if module is None and kind == "slow-card":
        raise LaunchError("simulated.fault_needs_card", ExitCode.USAGE, found=text)
    after: float | None = _DEFAULT_SECONDS[kind]
    if found["time"] is not None:
        after = read_time(found["time"])
    if after is None or not 0 <= after <= _MOST_SECONDS:
        raise LaunchError(
            "simulated.fault_time", ExitCode.USAGE, found=text, most=f"{_MOST_SECONDS:.0f}"
        )
    return CardFault(kind, after, module)


def fault_document(
    faults: Sequence[CardFault], modules: Sequence[int], cards: int
) -> list[dict[str, Any]]:
    """Return the executor's list: each fault with its copy of the model.

    ``modules`` are those of all copies, ``cards`` of them for each copy. A fault without a card
    concerns the first copy. Raises LaunchError (USAGE) for a card that the service does not have.
    """
    found = []
    for fault in faults:
        rank, module = 0, fault.module
        if module is not None and module not in modules:
            listed = ",".join(map(str, modules))
            raise LaunchError("simulated.fault_card", ExitCode.USAGE, module=module, modules=listed)
        if module is not None:
            rank = list(modules).index(module) // cards
        found.append({"kind": fault.kind, "after": fault.after, "module": module, "rank": rank})
    return found
