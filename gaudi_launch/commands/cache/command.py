"""``gaudi-launch cache``: list, verify, prune and ship compiled graphs."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.machine_option import MACHINE
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand
from gaudi_launch.cli.shared_options import ALL, CACHE
from gaudi_launch.commands.cache import case as use_case
from gaudi_launch.commands.cache import view
from gaudi_launch.core.recipes import maintenance, ship

app = CommandApp(
    no_args_is_help=True, help="List, verify, prune and ship caches of compiled graphs (recipes)."
)


@app.command("list")
def list_(
    cache: Path | None = CACHE,
    everything: bool = ALL,
    as_json: bool = JSON,
    machine: str | None = MACHINE,
) -> None:
    """List every key, and whether it fits this machine.

    Model, engine, cards, dtype, graphs, size and age are shown.
    """
    from gaudi_launch.core.recipes.cache_root import flat_files

    root = use_case.root_of(cache)
    found = use_case.listing(root, machine)
    view.show_listing(root, found, as_json, flat=flat_files(root), complete=everything)


@app.command()
def show(key: str, cache: Path | None = CACHE, as_json: bool = JSON) -> None:
    """Show one key: its model and machine, compiled buckets, and fill times."""
    view.show_key(*use_case.indexed(use_case.root_of(cache), key), as_json)


@app.command()
def verify(
    key: str | None = typer.Argument(None, help="A key or its first digits; all keys without it."),
    quick: bool = typer.Option(
        False, "--quick", help="Names and sizes only; contents are not read."
    ),
    cache: Path | None = CACHE,
    as_json: bool = JSON,
) -> None:
    """Compare the files with the index.

    Sizes, checksums, empty and foreign files and interrupted fills are found.
    """
    root = use_case.root_of(cache)
    verdicts = use_case.verify(root, key, quick=quick)
    view.show_verdicts(root, verdicts, as_json)
    raise typer.Exit(0 if all(findings.sound for _, findings in verdicts) else 1)


@app.command()
def prune(
    max_size: str | None = typer.Option(
        None, "--max-size", metavar="200G", help="Keep at most this much."
    ),
    older: str | None = typer.Option(
        None, "--older", metavar="30d", help="Remove keys not used for this long."
    ),
    yes: bool = typer.Option(False, "--yes", help="Remove; without it keys are only shown."),
    cache: Path | None = CACHE,
    as_json: bool = JSON,
) -> None:
    """Remove keys by size or age. Only shows them without --yes; keeps keys in use."""
    root = use_case.root_of(cache)
    doomed, removed = use_case.prune(root, max_size, older, remove=yes)
    view.show_pruned(root, doomed, removed, yes, as_json)


@app.command()
def export(key: str, file: Path, cache: Path | None = CACHE, as_json: bool = JSON) -> None:
    """Write one key to FILE.tar.zst, to import on another machine."""
    root = use_case.root_of(cache)
    entry = maintenance.find(root, key)
    files, total = ship.export(root, entry, file)
    view.show_exported(entry.key, file, files, total, as_json)


@app.command("import")
def import_(
    file: Path,
    force: bool = typer.Option(
        False, "--force", help="Import even for another machine, or replace an existing key."
    ),
    cache: Path | None = CACHE,
    as_json: bool = JSON,
    machine: str | None = MACHINE,
) -> None:
    """Import an exported key; refuse one compiled for another machine."""
    root = use_case.root_of(cache)
    view.show_imported(
        root, ship.import_(root, file, use_case.parts_here(machine), force=force), as_json
    )


@app.command()
def sync(
    key: str,
    target: str = typer.Argument(..., metavar="USER@HOST[:DIR]"),
    run: bool = typer.Option(False, "--run", help="Run the command instead of printing it."),
    cache: Path | None = CACHE,
    as_json: bool = JSON,
) -> None:
    """Print or run the rsync command that copies a key elsewhere."""
    words = use_case.sync_command(use_case.root_of(cache), key, target)
    if run:
        use_case.sync(words)
    else:
        view.show_command(words, as_json)


@app.command(cls=RecordCommand)
def adopt(as_json: bool = JSON, options: LaunchOptions = Launch) -> None:
    """Write an index for a cache folder of the start scripts.

    Give -c DIR and the options of its serve.
    """
    view.show_adopted(*use_case.adopt(options), as_json)
