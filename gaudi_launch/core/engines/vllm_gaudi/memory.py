"""vllm-gaudi's share of a card, and the part of it that is reserved for graphs.

The plugin does not measure activations (its profile run returns immediately), so what stays free
must be known before: the plugin's launcher has a table of it, profiles/vllm-gaudi-memory.yaml. The
arithmetic is that launcher's (vllm-project/vllm-gaudi@091bbadd:.cd/server/vllm_autocalc_rules.py)
with two differences: the card's memory is what a process was seen to get of it, and graphs are
counted, not estimated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from gaudi_launch.core.base import paths
from gaudi_launch.core.models import sizing
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning import profiles

ORIGIN = "vllm-project/vllm-gaudi@091bbadd:.cd/server/vllm_autocalc_rules.py"
# a model outside the table takes no more than the share that the plugin's documents use
MOST_UNKNOWN = 0.9
_LEAST_SHARE = 0.1
# vllm_autocalc_rules.py calc_VLLM_GRAPH_RESERVED_MEM: torch.compile needs less than lazy mode's
# graphs
_MOST_RESERVED = {"compile": 0.1, "lazy": 0.5}


@dataclass(frozen=True)
class Need:
    """GiB of one card to leave free for activations, MiB of one graph.

    ``known``: the table has the model.
    """

    free_gib: float
    graph_mib: float
    known: bool


@cache
def _table() -> dict[str, Any]:
    document: dict[str, Any] = profiles.read_document(
        paths.profiles_dir() / "vllm-gaudi-memory.yaml"
    )
    return document


def _row(rows: list[dict[str, Any]], model: Model) -> dict[str, Any] | None:
    """Return the row of this name; else the row of a model of the same build."""
    name = model.name.lower()
    for row in rows:
        if any(fnmatchcase(name, pattern) for pattern in row["names"]):
            return row
    shape = [
        model.model_type,
        model.layers,
        model.hidden_size,
        model.intermediate_size,
        model.heads,
        model.kv_heads,
    ]
    return next((row for row in rows if row.get("shape") == shape), None)


def need_of(model: Model, cards: int, batched_tokens: int) -> Need:
    """Return the needs of this model.

    More tokens per step than the table's need proportionally more for activations.
    """
    table = _table()
    row = _row(table["models"], model)
    known = row if row is not None else table["others"]
    tokens = max(batched_tokens, table["batched_tokens"])
    more = sizing.activation_bytes(model, tokens, cards) - sizing.activation_bytes(
        model, table["batched_tokens"], cards
    )
    return Need(known["free_gib"] + more / sizing.GIB, known["graph_mib"], row is not None)


def utilization(free_gib: float, need: Need) -> float:
    """Return the share of ``free_gib`` that leaves what is needed.

    In integer percents.

    ``free_gib`` is a card less its weights.

    >>> utilization(79.042, Need(9, 10, True)), utilization(110.0, Need(8, 20, False))
    (0.88, 0.9)
    """
    if free_gib <= 0:
        return _LEAST_SHARE
    share = math.floor(100 * (1 - need.free_gib / free_gib)) / 100
    return max(_LEAST_SHARE, share if need.known else min(share, MOST_UNKNOWN))


def reserved(usable_gib: float, graphs: int, need: Need, lazy: bool) -> float:
    """Return the share of usable memory for this number of graphs.

    In integer percents.

    It is rounded up.

    >>> reserved(69.556, 254, Need(9, 10, True), lazy=False)
    0.04
    """
    most = _MOST_RESERVED["lazy" if lazy else "compile"]
    if usable_gib <= 0:
        return most
    share = math.ceil(100 * graphs * need.graph_mib / 1024 / usable_gib) / 100
    return min(max(share, 0.01), most)
