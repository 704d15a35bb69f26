"""The table of ``fit``, for people and for programs."""

from __future__ import annotations

from typing import Any

from gaudi_launch.cli.console import console, known, table
from gaudi_launch.commands.inspect.fit.case import FitResult
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.models.card_memory import FitRow
from gaudi_launch.core.models.sizing import GIB

_UNEVEN = ("fit.heads", "fit.kv_heads")


def to_json(result: FitResult) -> dict[str, Any]:
    """Return the table for programs."""
    return {
        "schema": 1,
        "model": result.model.path,
        "accelerator": result.accelerator,
        "engine": result.engine.identity.label if result.engine is not None else None,
        "max_model_len": result.max_model_len,
        "smallest_n": result.table.smallest_n,
        "assumed": list(result.assumed),
        "warnings": [each.to_json() for each in result.unknown],
        "rows": [_row_to_json(row) for row in result.table.rows],
    }


def _row_to_json(row: FitRow) -> dict[str, Any]:
    return {
        "n": row.n,
        "dtype": row.dtype,
        "fits": row.fits,
        "weights_gib_per_card": _rounded(row.weights_gib_per_card),
        "activations_gib_per_card": _rounded(row.activations_gib_per_card),
        "graphs_gib_per_card": _rounded(row.graphs_gib_per_card),
        "kv_gib_per_card": _rounded(row.kv_gib_per_card),
        "states_gib_per_card": _rounded(row.states_gib_per_card),
        "kv_bytes_per_token": row.kv_bytes_per_token,
        "kv_blocks": row.kv_blocks,
        "concurrency": _rounded(row.concurrency),
        "longest_context": row.longest_context,
        "reason": row.reason.render(),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def show(result: FitResult) -> None:
    """Print the table, the smallest number of cards, and the assumptions."""
    first = "n" if result.cores is None else "cores"
    names = (first, "dtype", "fits", "weights", "kv", "blocks", "context", "concurrency", "reason")
    columns = [text(f"fit.column_{name}") for name in names]
    out = console()
    rows = [_cells(row) for row in result.table.rows]
    out.print(table(_title(result), columns, rows, right=(0, 3, 4, 5, 6, 7)))
    out.print(_verdict(result))
    if result.profile is not None and not result.unknown:
        out.print(text("fit.from_profile", profile=result.profile))
    if result.assumed:
        what = text("common.between").join(_assumption(name) for name in result.assumed)
        out.print(text("fit.assumed", what=what))
    for warning in result.unknown:
        out.print(text("plan.warning", what=warning.render()))


def _assumption(name: str) -> str:
    """Return the text of an assumption, such as "gaudi3-pcie.memory"."""
    owner, _, part = name.rpartition(".")
    if part == "memory":
        return text("fit.assumed_memory", accelerator=owner)
    if part == "architecture":
        return text("fit.assumed_architecture", profile=owner)
    return text("fit.assumed_activations")


def _title(result: FitResult) -> str:
    about = {"model": result.model.path, "accelerator": result.accelerator}
    if result.usable_bytes is None:
        return text("fit.title_neuron", cores=result.cores, **about)
    return text("fit.title", memory=f"{result.usable_bytes / GIB:.1f}", **about)


def _cells(row: FitRow) -> tuple[str, ...]:
    return (
        str(row.n),
        row.dtype,
        text("fit.yes" if row.fits else "fit.no"),
        known(row.weights_gib_per_card, "{:.1f}"),
        known(row.kv_gib_per_card, "{:.1f}"),
        known(row.kv_blocks),
        known(row.longest_context),
        known(row.concurrency, "{:.1f}"),
        row.reason.render(),
    )


def _verdict(result: FitResult) -> str:
    """Return the sentence below the table: the smallest number of cards, or why none."""
    smallest, dtype = result.table.smallest_n, result.dtypes[0]
    if smallest is not None:
        id = "fit.smallest" if result.cores is None else "fit.smallest_neuron"
        if result.numbers_given:
            id = "fit.smallest_asked"
        return text(id, n=smallest, dtype=dtype)
    for row in result.table.rows:
        if row.fits:
            return text("fit.smallest_other", dtype=dtype, other=row.dtype, n=row.n)
    uneven = all(row.reason.id in _UNEVEN for row in result.table.rows)
    if uneven:
        return text("fit.other_n")
    if any(row.reason.id == "fit.unknown" for row in result.table.rows):
        return text("fit.not_known", dtype=dtype)
    return text(
        "fit.nowhere", would=text("common.between").join(way.render() for way in result.would)
    )
