"""Caches of compiled graphs, for people and for programs."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gaudi_launch.cli.console import console, emit_json, known, size_text
from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.commands.cache.case import CachedKey
from gaudi_launch.core.base.durations import duration
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.recipes.cache_root import CacheEntry
from gaudi_launch.core.recipes.key import part_label
from gaudi_launch.core.recipes.ledger import Ledger
from gaudi_launch.core.recipes.manifest import Findings
from gaudi_launch.core.recipes.size_limits import Doomed

_SHOWN_FILES = 5
_COLUMNS = ("key", "model", "engine", "cards", "dtype", "graphs", "files", "size", "age", "state")
_SHORT = ("key", "model", "graphs", "size", "age", "state")
_NUMBERS = ("cards", "graphs", "files", "size", "age")


def key_json(key: CachedKey) -> dict[str, Any]:
    """Return one row of the listing for programs."""
    entry, ledger = key.entry, key.entry.ledger
    row: dict[str, Any] = {
        "key": entry.key,
        "folder": str(entry.folder),
        "files": entry.files,
        "bytes": entry.bytes,
        "in_use": entry.in_use,
        "trouble": entry.trouble,
        "state": key.state,
    }
    if ledger is None:
        return row
    return row | {
        "differences": [asdict(each) for each in key.differences],
        "model": ledger.parts.model,
        "engine": ledger.parts.engine,
        "cards": ledger.parts.tensor_parallel,
        "dtype": ledger.parts.dtype,
        "graphs": ledger.buckets.graphs,
        "complete": ledger.complete,
        "last_used": ledger.last_used,
    }


def show_listing(
    root: Path, found: Sequence[CachedKey], as_json: bool, *, flat: bool, complete: bool = False
) -> None:
    """Print how many keys fit this machine, and a row for each.

    ``flat``: files of the start scripts are in the root itself. ``complete``: with every column.
    """
    if as_json:
        rows = [key_json(key) for key in found]
        emit_json({"schema": 1, "root": str(root), "flat": flat, "entries": rows})
        return
    tail = []
    if flat and all(key.entry.folder != root for key in found):
        tail = [text("cache.flat_hint", path=str(root))]
    if not found:
        serve = next_line("gaudi-launch serve MODEL")
        ShortPage([text("cache.none", path=str(root)), serve], tail=tail).show(complete=True)
        return
    columns = _COLUMNS if complete else _SHORT
    shown = [_COLUMNS.index(name) for name in columns]
    noted = []
    for key in found:
        cells = _cells(key)
        noted.append(NotedRow(tuple(cells[at] for at in shown), _remark(key)))
    total = size_text(sum(key.entry.bytes for key in found))
    hits = sum(key.state == "hit" for key in found)
    page = ShortPage(
        [
            text("cache.answer", n=len(found), path=str(root), size=total, hits=hits),
            next_line(f"gaudi-launch cache show {found[0].entry.key}"),
        ],
        [text(f"cache.column_{name}") for name in _COLUMNS if name in columns],
        noted,
        right=[at for at, name in enumerate(columns) if name in _NUMBERS],
        tail=tail,
    )
    page.show(complete=complete)


def _cells(key: CachedKey) -> tuple[str, ...]:
    entry, ledger = key.entry, key.entry.ledger
    known: tuple[str, ...] = ("-", "-", "-", "-", "-")
    age = "-"
    if ledger is not None:
        parts = ledger.parts
        known = (
            parts.model,
            parts.engine,
            str(parts.tensor_parallel),
            parts.dtype,
            str(ledger.buckets.graphs),
        )
        age = duration(time.time() - ledger.last_used)
    return (
        entry.key,
        *known,
        str(entry.files),
        size_text(entry.bytes),
        age,
        text(f"cache.state_{key.state}"),
    )


def _remark(key: CachedKey) -> str:
    if key.entry.trouble:
        return key.entry.trouble
    if key.differences:
        return "; ".join(d.shown() for d in key.differences)
    if not key.entry.in_use:
        return ""
    return text("cache.word_in_use")


def show_key(entry: CacheEntry, ledger: Ledger, as_json: bool) -> None:
    """Print the index of one key."""
    document = ledger.to_json()
    if as_json:
        emit_json({**document, "schema": 1, "path": str(entry.folder), "in_use": entry.in_use})
        return
    parts = document["parts"]
    rows = [(part_label(name), str(value)) for name, value in parts.items() if name != "variables"]
    rows += sorted(parts["variables"].items())
    now = time.time()
    answer = text(
        "cache.key_answer",
        key=ledger.key,
        graphs=ledger.buckets.graphs,
        model=ledger.parts.model,
        files=ledger.files,
        size=size_text(ledger.bytes),
        complete=text("cache.word_yes" if ledger.complete else "cache.word_no"),
    )
    facts = {
        "cache.word_created": duration(now - ledger.created),
        "cache.word_last_used": duration(now - ledger.last_used),
        "cache.word_filled": ", ".join(map(duration, ledger.filled_seconds)) or "-",
        "cache.word_used": ", ".join(map(duration, ledger.used_seconds)) or "-",
        "cache.word_blocks": known(ledger.num_blocks, "{:,}"),
    }
    ShortPage(
        [answer, text("cache.key_folder", path=str(entry.folder))],
        (text("cache.column_fact"), ""),
        [NotedRow(row) for row in rows if row[1]],
        tail=[text("common.pair", label=text(id), value=value) for id, value in facts.items()],
    ).show(complete=True)


def show_verdicts(
    root: Path, verdicts: Sequence[tuple[CacheEntry, Findings]], as_json: bool
) -> None:
    """Print what was found of each key."""
    if as_json:
        sound = all(findings.sound for _, findings in verdicts)
        keys = [verdict_json(*verdict) for verdict in verdicts]
        emit_json({"schema": 1, "root": str(root), "sound": sound, "keys": keys})
        return
    if not verdicts:
        console().print(text("cache.none", path=str(root)))
    for verdict in verdicts:
        _show_verdict(*verdict)


def verdict_json(entry: CacheEntry, findings: Findings) -> dict[str, Any]:
    """Return the findings about a key for programs."""
    return {
        "key": entry.key,
        "sound": findings.sound,
        "complete": entry.ledger.complete if entry.ledger is not None else False,
        "trouble": entry.trouble,
        **asdict(findings),
    }


def _show_verdict(entry: CacheEntry, findings: Findings) -> None:
    out = console()
    state = "cache.sound" if findings.sound else "cache.unsound"
    out.print(text(state, key=entry.key))
    if entry.trouble:
        out.print("  " + text("cache.no_ledger", key=entry.key, why=entry.trouble))
    elif entry.ledger is not None and not entry.ledger.complete:
        out.print("  " + text("cache.interrupted", key=entry.key))
    for word, names in asdict(findings).items():
        if names:
            shown = ", ".join(names[:_SHOWN_FILES]) + (" ..." if len(names) > _SHOWN_FILES else "")
            line = text(
                "common.pair", label=text(f"cache.word_{word}"), value=f"{len(names)} ({shown})"
            )
            out.print(f"  {line}")


def show_pruned(
    root: Path, doomed: Sequence[Doomed], removed: Sequence[str], removes: bool, as_json: bool
) -> None:
    """Print the keys that go, with the reason of each."""
    if as_json:
        rows = [
            {"key": d.entry.key, "bytes": d.entry.bytes, "reason": d.reason.render()}
            for d in doomed
        ]
        emit_json({"schema": 1, "root": str(root), "doomed": rows, "removed": removed})
        return
    out = console()
    for each in doomed:
        out.print(f"{each.entry.key}  {size_text(each.entry.bytes)}  {each.reason.render()}")
    total = size_text(sum(each.entry.bytes for each in doomed))
    id = "cache.would_prune" if doomed else "cache.prune_none"
    if removes:
        id = "cache.pruned"
    out.print(text(id, count=len(doomed), size=total))


def show_exported(key: str, file: Path, files: int, total: int, as_json: bool) -> None:
    """Print what an exported archive contains."""
    if as_json:
        emit_json({"schema": 1, "key": key, "file": str(file), "files": files, "bytes": total})
        return
    line = text("cache.exported", key=key, path=str(file), count=files, size=size_text(total))
    console().print(line)


def show_imported(root: Path, ledger: Ledger, as_json: bool) -> None:
    """Print the key that was imported."""
    graphs = ledger.buckets.graphs
    if as_json:
        emit_json({"schema": 1, "key": ledger.key, "root": str(root), "graphs": graphs})
        return
    console().print(text("cache.imported", key=ledger.key, path=str(root), graphs=graphs))


def show_adopted(root: Path, ledger: Ledger, as_json: bool) -> None:
    """Print the key of a folder that has an index now."""
    if as_json:
        emit_json({"schema": 1, "root": str(root), "key": ledger.key, "files": ledger.files})
        return
    line = text("cache.adopted", path=str(root), key=ledger.key, count=ledger.files)
    console().print(line)


def show_command(words: Sequence[str], as_json: bool) -> None:
    """Print a command to copy."""
    if as_json:
        emit_json({"schema": 1, "argv": list(words)})
        return
    print(shlex.join(words))
