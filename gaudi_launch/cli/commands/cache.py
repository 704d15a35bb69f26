"""``gaudi-launch cache``: what compiled graphs lie on this machine, whether they are sound, and where they go."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.console import size_text
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand
from gaudi_launch.debug_log import ChildLog

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from gaudi_launch.recipe_cache.cache_root import CacheEntry
    from gaudi_launch.recipe_cache.key import KeyParts
    from gaudi_launch.recipe_cache.manifest import Findings

app = CommandApp(no_args_is_help=True, help="List, verify, prune and ship caches of compiled graphs (recipes).")

Root = typer.Option(None, "-c", "--cache", metavar="DIR", help="The cache root (default: the XDG cache folder).")
Json = typer.Option(False, "--json", help="One JSON object on stdout.")
Machine = typer.Option(None, "--machine", help="Check for another machine: a snapshot or simulated:NAME.")


def _root(cache: Path | None) -> Path:
    from gaudi_launch.paths import cache_dir

    return cache if cache is not None else cache_dir() / "recipes"


def _here(machine: str | None) -> KeyParts:
    from gaudi_launch.host.machine import load
    from gaudi_launch.recipe_cache.key import parts_of_host

    return parts_of_host(load(machine))


def _row(entry: CacheEntry, here: KeyParts) -> dict[str, Any]:
    from gaudi_launch.recipe_cache.ship import differences

    ledger = entry.ledger
    row: dict[str, Any] = {"key": entry.key, "folder": str(entry.folder), "files": entry.files}
    row |= {"bytes": entry.bytes, "in_use": entry.in_use, "trouble": entry.trouble}
    if ledger is None:
        return row | {"state": "unknown"}
    different = [{"name": d.name, "was": d.was, "now": d.now} for d in differences(ledger, here)]
    state = "miss" if different else "hit" if ledger.complete else "partial"
    parts = ledger.parts
    return row | {
        "state": state,
        "differences": different,
        "model": parts.model,
        "engine": parts.engine,
        "cards": parts.tensor_parallel,
        "dtype": parts.dtype,
        "graphs": ledger.buckets.graphs,
        "complete": ledger.complete,
        "last_used": ledger.last_used,
    }


def _age(then: float) -> str:
    import time

    seconds = max(0.0, time.time() - then)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


@app.command("list")
def list_(cache: Path | None = Root, as_json: bool = Json, machine: str | None = Machine) -> None:
    """List every key: model, engine, cards, dtype, graphs, size, age, and if it fits this machine."""
    from gaudi_launch.cli.console import console, emit_json, table
    from gaudi_launch.messages import text
    from gaudi_launch.recipe_cache.cache_root import entries, flat_files

    root, here = _root(cache), _here(machine)
    rows = [_row(entry, here) for entry in entries(root)]
    flat = flat_files(root)
    if as_json:
        return emit_json({"schema": 1, "root": str(root), "flat": flat, "entries": rows})
    out = console()
    if not rows:
        out.print(text("cache.none", path=str(root)), markup=False)
    else:
        columns = ("key", "model", "engine", "n", "dtype", "graphs", "files", "size", "age", "state", "")
        cells = [
            (
                row["key"],
                str(row.get("model", "-")),
                str(row.get("engine", "-")),
                str(row.get("cards", "-")),
                str(row.get("dtype", "-")),
                str(row.get("graphs", "-")),
                str(row["files"]),
                size_text(row["bytes"]),
                _age(row["last_used"]) if "last_used" in row else "-",
                row["state"],
                row["trouble"]
                or "; ".join(f"{d['name']} {d['was']} -> {d['now']}" for d in row.get("differences", ()))
                or (text("cache.word_in_use") if row["in_use"] else ""),
            )
            for row in rows
        ]
        out.print(table(str(root), columns, cells, right=(3, 5, 6, 7, 8)))
    if flat and not any(row["folder"] == str(root) for row in rows):
        out.print(text("cache.flat_hint", path=str(root)), markup=False)


@app.command()
def show(key: str, cache: Path | None = Root, as_json: bool = Json) -> None:
    """Show one key: its model and machine, compiled buckets, and fill times."""
    from gaudi_launch.cli.console import console, emit_json, table
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.recipe_cache.cache_root import find

    entry = find(_root(cache), key)
    if entry.ledger is None:
        raise LaunchError("cache.no_ledger", ExitCode.FAILED, key=entry.key, why=entry.trouble)
    document = entry.ledger.to_json()
    if as_json:
        return emit_json({**document, "schema": 1, "path": str(entry.folder), "in_use": entry.in_use})
    parts = document.pop("parts")
    rows = [(name, str(value)) for name, value in parts.items() if name != "variables"]
    rows += [(name, value) for name, value in parts["variables"].items()]
    out = console()
    out.print(table(str(entry.folder), ("what it was compiled for", ""), rows))
    buckets = document.pop("buckets")
    rows = [(name, str(value)) for name, value in document.items() if name not in ("schema", "folder")]
    rows += [("prompt buckets", str(len(buckets["prompt"]))), ("decode buckets", str(len(buckets["decode"])))]
    out.print(table("", ("what it holds", ""), rows))


@app.command()
def verify(
    key: str | None = typer.Argument(None, help="A key or its first digits; all keys without it."),
    quick: bool = typer.Option(False, "--quick", help="Names and sizes only; contents are not read."),
    repair: bool = typer.Option(False, "--repair", help="Remove only damaged files."),
    cache: Path | None = Root,
    as_json: bool = Json,
) -> None:
    """Compare files with the index: sizes, checksums, empty and foreign files, interrupted fills."""
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.recipe_cache import cache_root

    root = _root(cache)
    chosen = [cache_root.find(root, key)] if key else cache_root.entries(root, sizes=False)
    results = []
    for entry in chosen:
        findings = cache_root.check(root, entry, quick=quick)
        removed = cache_root.repair(root, entry, findings) if repair and not findings.sound else ()
        results.append((entry, findings, removed))
    sound = all(findings.sound or removed == findings.bad != () for _, findings, removed in results)
    if as_json:
        emit_json({"schema": 1, "root": str(root), "sound": sound, "keys": [_verdict(*r) for r in results]})
    else:
        _print_verdicts(root, results)
    raise typer.Exit(0 if sound else 1)


def _verdict(entry: CacheEntry, findings: Findings, removed: tuple[str, ...]) -> dict[str, Any]:
    from dataclasses import asdict

    complete = entry.ledger.complete if entry.ledger else False
    verdict: dict[str, Any] = {"key": entry.key, "sound": findings.sound, "complete": complete}
    return verdict | {"trouble": entry.trouble} | asdict(findings) | {"removed": removed}


def _print_verdicts(root: Path, results: list[tuple[CacheEntry, Findings, tuple[str, ...]]]) -> None:
    from dataclasses import asdict

    from gaudi_launch.cli.console import console
    from gaudi_launch.messages import text

    out = console()
    if not results:
        out.print(text("cache.none", path=str(root)), markup=False)
    for entry, findings, removed in results:
        state = "cache.sound" if findings.sound else "cache.unsound"
        out.print(text(state, key=entry.key), markup=False)
        if entry.trouble:
            out.print("  " + text("cache.no_ledger", key=entry.key, why=entry.trouble), markup=False)
        elif entry.ledger is not None and not entry.ledger.complete:
            out.print("  " + text("cache.interrupted", key=entry.key), markup=False)
        for word, names in asdict(findings).items():
            if names:
                shown = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
                out.print(f"  {text('cache.word_' + word)}: {len(names)} ({shown})", markup=False)
        if removed:
            out.print("  " + text("cache.repaired", count=len(removed)), markup=False)


@app.command()
def prune(
    max_size: str | None = typer.Option(None, "--max-size", metavar="200G", help="Keep at most this much."),
    older: str | None = typer.Option(None, "--older", metavar="30d", help="Remove keys not used for this long."),
    stale: bool = typer.Option(False, "--stale", help="Remove keys of another product or driver."),
    yes: bool = typer.Option(False, "--yes", help="Remove; without it keys are only shown."),
    cache: Path | None = Root,
    as_json: bool = Json,
    machine: str | None = Machine,
) -> None:
    """Remove keys by size, age or use. Only shows them without --yes; keeps keys in use."""
    import time

    from gaudi_launch.cli.console import console, emit_json
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text
    from gaudi_launch.recipe_cache import cache_root
    from gaudi_launch.recipe_cache.size_limits import parse_age, parse_size, to_prune

    if max_size is None and older is None and not stale:
        raise LaunchError("cache.prune_nothing_asked", ExitCode.USAGE)
    root = _root(cache)
    doomed = to_prune(
        cache_root.entries(root),
        now=time.time(),
        max_bytes=parse_size(max_size) if max_size is not None else None,
        older_seconds=parse_age(older) if older is not None else None,
        here=_here(machine) if stale else None,
    )
    removed = []
    for each in doomed if yes else ():
        cache_root.remove(root, each.entry)
        removed.append(each.entry.key)
    if yes:
        cache_root.sweep(root)
    if as_json:
        rows = [{"key": d.entry.key, "bytes": d.entry.bytes, "reason": d.reason.render()} for d in doomed]
        return emit_json({"schema": 1, "root": str(root), "doomed": rows, "removed": removed})
    out = console()
    for each in doomed:
        out.print(f"{each.entry.key}  {size_text(each.entry.bytes)}  {each.reason.render()}", markup=False)
    total = size_text(sum(each.entry.bytes for each in doomed))
    id = "cache.pruned" if yes else "cache.would_prune" if doomed else "cache.prune_none"
    out.print(text(id, count=len(doomed), size=total), markup=False)


@app.command()
def export(key: str, file: Path, cache: Path | None = Root, as_json: bool = Json) -> None:
    """Write one key to FILE.tar.zst, to import on another machine."""
    from gaudi_launch.cli.console import console, emit_json
    from gaudi_launch.messages import text
    from gaudi_launch.recipe_cache import cache_root, ship

    root = _root(cache)
    entry = cache_root.find(root, key)
    files, total = ship.export(root, entry, file)
    if as_json:
        return emit_json({"schema": 1, "key": entry.key, "file": str(file), "files": files, "bytes": total})
    console().print(
        text("cache.exported", key=entry.key, path=str(file), count=files, size=size_text(total)), markup=False
    )


@app.command("import")
def import_(
    file: Path,
    force: bool = typer.Option(
        False, "--force", help="Import even for another machine, or replace an existing key."
    ),
    cache: Path | None = Root,
    as_json: bool = Json,
    machine: str | None = Machine,
) -> None:
    """Import an exported key; refuse one compiled for another machine."""
    from gaudi_launch.cli.console import console, emit_json
    from gaudi_launch.messages import text
    from gaudi_launch.recipe_cache import ship

    root = _root(cache)
    ledger = ship.import_(root, file, _here(machine), force=force)
    if as_json:
        return emit_json({"schema": 1, "key": ledger.key, "root": str(root), "graphs": ledger.buckets.graphs})
    said = text("cache.imported", key=ledger.key, path=str(root), graphs=ledger.buckets.graphs)
    console().print(said, markup=False)


@app.command()
def sync(
    key: str,
    target: str = typer.Argument(..., metavar="USER@HOST[:DIR]"),
    run: bool = typer.Option(False, "--run", help="Run the command instead of printing it."),
    cache: Path | None = Root,
    as_json: bool = Json,
) -> None:
    """Print (or run) the rsync command that copies one key to another machine."""
    import shlex

    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.recipe_cache import cache_root, ship

    root = _root(cache)
    words = ship.sync_command(root, cache_root.find(root, key), target)
    if not run:
        if as_json:
            from gaudi_launch.cli.console import emit_json

            return emit_json({"schema": 1, "argv": words})
        return typer.echo(shlex.join(words))
    import subprocess

    seen = ChildLog(_log, words)
    try:
        status = subprocess.run(words, check=False).returncode
        seen.ended(status)
    except OSError as error:
        seen.failed(error)
        raise LaunchError("cache.sync_failed", ExitCode.FAILED, why=str(error)) from None
    if status:
        raise LaunchError("cache.sync_failed", ExitCode.FAILED, why=f"rsync: {status}")


@app.command(cls=RecordCommand)
def adopt(as_json: bool = Json, options: LaunchOptions = Launch) -> None:
    """Write an index for a cache folder of the start scripts (-c DIR, and the options of its serve)."""
    from gaudi_launch.app.prepare import prepare
    from gaudi_launch.buckets.bucket_list import Buckets
    from gaudi_launch.cli.console import console, emit_json
    from gaudi_launch.messages import text
    from gaudi_launch.recipe_cache.cache_root import adopt as write
    from gaudi_launch.recipe_cache.key import parts_of

    root = _root(Path(options.cache_dir) if options.cache_dir else None)
    prepared = prepare(options)
    # nobody wrote down which buckets they cover, so none is claimed
    ledger = write(root, parts_of(prepared.plan(), prepared.host), Buckets([], []))
    if as_json:
        return emit_json({"schema": 1, "root": str(root), "key": ledger.key, "files": ledger.files})
    console().print(text("cache.adopted", path=str(root), key=ledger.key, count=ledger.files), markup=False)
