"""``gaudi-launch offline``: packs for hosts without a network."""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.record_options import ModelCommand
from gaudi_launch.cli.shared_options import CACHE
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.extensions.offline import case as offline
from gaudi_launch.extensions.offline import pack as offline_pack
from gaudi_launch.extensions.offline.view import show_installed, show_pack, show_packed

app = CommandApp(
    no_args_is_help=True, help="Pack an engine and a model for a host without a network."
)


@app.command(cls=ModelCommand)
def pack(
    model: str = typer.Argument(
        ..., metavar="MODEL", help="A folder, a model's ID on a hub, or demo (cpu)."
    ),
    to: Path = typer.Option(
        ..., "--to", metavar="DIR|FILE.tar", help="The pack: a new folder, or one file."
    ),
    engine: str = typer.Option(
        ..., "--engine", metavar="ENGINE", help="cpu, or one of 'gaudi-launch engines'."
    ),
    with_cache: bool = typer.Option(
        False, "--with-cache", help="Also pack the compiled graphs of this model."
    ),
    image: bool = typer.Option(
        False, "--image", help="Also pack the engine's image, or its Dockerfile without one."
    ),
    python: str | None = typer.Option(
        None, "--python", metavar="PATH", help="A Python here of the version that the host has."
    ),
    platform: str = typer.Option(
        "",
        "--platform",
        metavar="manylinux_2_X_ARCH",
        help="The host's platform, by pip's name (default: this machine's).",
    ),
    cache: Path | None = CACHE,
    as_json: bool = JSON,
) -> None:
    """Collect an engine and a model in one file.

    It contains wheels, code, image, model, measurements and recipes with their hashes.

    Run again after an interruption to resume.
    """
    options = offline_pack.PackOptions(
        engine, model, to, with_cache, image, python, platform, cache
    )
    show_packed(*offline_pack.pack(options, Terminal()), as_json)


@app.command()
def show(pack: Path = typer.Argument(..., metavar="PACK"), as_json: bool = JSON) -> None:
    """List what a pack contains. Its files are not read."""
    show_pack(pack, offline.show(pack), as_json)


@app.command()
def install(
    pack: Path = typer.Argument(..., metavar="PACK"),
    python: str | None = typer.Option(
        None, "--python", metavar="PATH", help="The Python to install over (as in setup)."
    ),
    force: bool = typer.Option(
        False, "--force", help="Import recipes even for another machine, or over existing ones."
    ),
    cache: Path | None = CACHE,
    as_json: bool = JSON,
) -> None:
    """Verify a pack, then install what it contains."""
    done = offline.install(pack, Terminal(), python=python, cache=cache, force=force)
    show_installed(done, as_json)
