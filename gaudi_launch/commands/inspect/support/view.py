"""The answers of ``support``, for people and for programs."""

from __future__ import annotations

from typing import Any

from gaudi_launch.cli.console import console, known, sentences, table
from gaudi_launch.commands.inspect.support.case import SupportResult, SupportRow
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.engines.support import ended


def to_json(result: SupportResult) -> dict[str, Any]:
    """Return the answers for programs."""
    return {
        "schema": 1,
        "model": result.model.path,
        "architecture": result.model.architecture,
        "quantization": result.model.quantization,
        "accelerator": result.accelerator,
        "versions": [_row_to_json(row) for row in result.rows],
    }


def _row_to_json(row: SupportRow) -> dict[str, Any]:
    tried = row.support.validated
    validated = None
    if tried is not None:
        validated = {
            "cards": list(tried.cards),
            "dtypes": list(tried.dtypes),
            "accelerators": list(tried.accelerators),
            "source": tried.source,
        }
    return {
        "engine": row.label,
        "status": row.support.status.value,
        "refused": row.support.refused,
        "reasons": [reason.to_json() for reason in row.support.reasons],
        "fewest_cards": row.fewest_cards,
        "validated": validated,
        "evidence": row.support.evidence,
        "kv_cache": [
            {
                "kind": each.kind,
                "layers": each.layers,
                "allocates": each.allocates,
                "message": each.meaning.render(),
                "source": each.source or None,
            }
            for each in row.support.caches
        ],
        "kv_bytes_per_token": row.kv_bytes_per_token,
        "installed": row.is_installed,
        "facts_date": row.facts.date if row.facts is not None else None,
        "ended": ended(row.label),
        "features": [
            {
                "id": each.feature,
                "status": each.status,
                "message": each.answer(row.label).render(),
                "source": each.thread or None,
            }
            for each in row.features
        ],
    }


def show(result: SupportResult) -> None:
    """Print the answers as a table."""
    names = ("engine", "answer", "cards", "validated", "reason")
    columns = [text(f"support.column_{name}") for name in names]
    rows = [_cells(row, result.accelerator) for row in result.rows]
    heading = text(
        "support.title",
        model=result.model.path,
        architecture=result.model.architecture or "-",
        accelerator=result.accelerator,
    )
    console().print(table(heading, columns, rows, right=(2,)))
    _show_caches(result)
    _show_features(result)


def _show_caches(result: SupportResult) -> None:
    """Print what the versions allocate, those with the same answer in one row."""
    by_answer: dict[tuple[str, str, str], list[str]] = {}
    for row in result.rows:
        for each in row.support.caches:
            kind = text(f"support.kind_{each.kind}")
            count = kind if each.layers is None else f"{each.layers} {kind}"
            size = _size_of(row, each.kind)
            by_answer.setdefault((count, each.meaning.render(), size), []).append(row.label)
    if not by_answer:
        return
    names = ("versions", "layers", "cache")
    columns = [text(f"support.column_{name}") for name in names]
    rows = [
        (_span(labels), count, sentences(meaning, size))
        for (count, meaning, size), labels in by_answer.items()
    ]
    console().print(table(text("support.title_cache"), columns, rows))


def _size_of(row: SupportRow, kind: str) -> str:
    """Return the size of a token next to the row that decides it."""
    deciding = next((each.kind for each in row.support.caches if each.kind != "state"), None)
    if row.kv_bytes_per_token is None or kind != deciding:
        return ""
    return text("support.cache_size", kib=f"{row.kv_bytes_per_token / 1024:.1f}")


def _span(labels: list[str]) -> str:
    """Return the first and the last of several labels of one engine, newest first."""
    engines: dict[str, list[str]] = {}
    for label in labels:
        engines.setdefault(label.partition("@")[0], []).append(label)
    return ", ".join(
        each[0] if len(each) == 1 else f"{each[-1]} - {each[0].rpartition('@')[2]}"
        for each in engines.values()
    )


def _show_features(result: SupportResult) -> None:
    """Print the answers about features of each engine's newest version with a list."""
    newest: dict[str, SupportRow] = {}
    for row in result.rows:
        if row.facts is not None and row.facts.complete:
            newest.setdefault(row.facts.engine, row)
    rows = [
        (text(f"features.name_{answer.feature}"), answer.answer(row.label).render())
        for row in newest.values()
        for answer in row.features
        if answer.status != "unknown"
    ]
    columns = [text("features.column_feature"), text("features.column_answer")]
    console().print(table(text("features.title"), columns, sorted(rows, key=lambda row: row[0])))


def _cells(row: SupportRow, accelerator: str) -> tuple[str, ...]:
    tried = row.support.validated
    validated = "-"
    if tried is not None and accelerator.partition("-")[0] in tried.accelerators:
        validated = f"{'/'.join(str(count) for count in tried.cards)} {'/'.join(tried.dtypes)}"
    why = [reason.render() for reason in row.support.reasons]
    if row.support.evidence:
        why.append(f"[{row.support.evidence}]")
    cards = known(row.fewest_cards)
    return (
        row.label,
        text(f"support.answer_{row.support.status.value}"),
        cards,
        validated,
        sentences(*why),
    )


def _classes(version: Version) -> int | None:
    """Return the number of model classes; None where not all are known."""
    if not version.complete:
        return None
    return len(version.classes)


def list_to_json(versions: tuple[Version, ...]) -> dict[str, Any]:
    """Return the versions with facts for programs."""
    rows = [
        {
            "engine": each.label,
            "date": each.date,
            "repository": each.repository,
            "commit": each.commit,
            "vllm": each.upstream or None,
            "classes": _classes(each),
            "quantization": list(each.methods),
            "transformers": each.transformers or None,
            "validated": [model["model"] for model in each.validated],
            "ended": ended(each.label),
        }
        for each in versions
    ]
    return {"schema": 1, "versions": rows}


def show_list(versions: tuple[Version, ...]) -> None:
    """Print the versions with facts as a table."""
    names = ("engine", "date", "commit", "classes", "methods", "validated_models")
    columns = [text(f"support.column_{name}") for name in names]
    rows = [
        (
            each.label,
            each.date,
            f"{each.repository}@{each.commit}",
            known(_classes(each)),
            ", ".join(each.methods),
            str(len(each.validated)),
        )
        for each in versions
    ]
    console().print(table(text("support.title_list"), columns, rows, right=(3, 5)))
