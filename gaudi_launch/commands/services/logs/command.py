"""``gaudi-launch logs``: print the log of a service's engine or launcher."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.console import emit_json, say
from gaudi_launch.cli.endless import until_ctrl_c
from gaudi_launch.cli.shared_options import NAME
from gaudi_launch.commands.services.logs.view import LineObjects, Sink, log_json
from gaudi_launch.core.base.errors import ExitCode, LaunchError, file_error
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.services.log.rotate import earlier
from gaudi_launch.core.services.log.tail import start_of_last
from gaudi_launch.core.services.state.registry import ServiceRecord, runs

app = CommandApp()

_POLL_SECONDS = 0.2
_PIECE = 1 << 16


@app.command()
def logs(
    name: str | None = NAME,
    follow: bool = typer.Option(
        False, "-f", "--follow", help="Follow the log until the service ends."
    ),
    launcher: bool = typer.Option(False, "--launcher", help="The launcher's log."),
    previous: bool = typer.Option(
        False,
        "-p",
        "--previous",
        help="The engine's log of the previous run, or before its last rotation.",
    ),
    lines: int | None = typer.Option(
        None, "-n", "--lines", metavar="N", min=0, help="Only the last N lines."
    ),
    as_json: bool = typer.Option(
        False, "--json", help="One JSON object with all lines; with --follow one object per line."
    ),
) -> None:
    """Print a service's log.

    With --follow --json each line of the log is one JSON object as soon as it is complete:
    {"schema": 1, "line": ...}.
    """
    from gaudi_launch.core.services.state.chosen import resolve

    if previous and (launcher or follow):
        raise LaunchError("services.previous", ExitCode.USAGE)
    found = resolve(name)
    path = _path(found, launcher=launcher, previous=previous)
    try:
        if found.alive and not previous and not path.exists():
            # the engine is not started yet: the service waits for its cards or its cache
            if not follow:
                if as_json:
                    emit_json(log_json(found.name, path, None))
                else:
                    say(text("diagnose.not_begun", name=found.name))
                return
            # wait until the log exists, or the service ended without one
            import time

            while not path.exists() and runs(found.folder):
                time.sleep(_POLL_SECONDS)
        with path.open("rb") as file:
            if lines is not None:
                file.seek(start_of_last(file, lines))
            _show(file, path, found, follow=follow, as_json=as_json)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise file_error("services.no_log", error, path) from None


def _show(
    file: BinaryIO, path: Path, service: ServiceRecord, *, follow: bool, as_json: bool
) -> None:
    """Print a log from the file's position.

    It is printed unchanged, as one object, or while it grows as an object per line.
    """
    import sys

    if not follow and as_json:
        emit_json(log_json(service.name, path, file.read()))
    elif not follow:
        _copy(file, sys.stdout.buffer)
    elif as_json:
        objects = LineObjects()
        with until_ctrl_c():
            _follow(file, path, service, objects)
        objects.close()
    else:
        with until_ctrl_c():
            _follow(file, path, service, sys.stdout.buffer)


def _copy(source: BinaryIO, target: Sink) -> None:
    while piece := source.read(_PIECE):
        target.write(piece)
    target.flush()


def _follow(file: BinaryIO, path: Path, service: ServiceRecord, target: Sink) -> None:
    """Print what is added.

    A log that was truncated, or renamed for a new run, is read from its new beginning.
    """
    import os
    import time

    alive = True
    while alive:
        # checked before the last read, so that the last lines are not missed
        alive = runs(service.folder)
        _copy(file, target)
        try:
            now = path.stat()
        except OSError:
            return
        if now.st_ino != os.fstat(file.fileno()).st_ino:
            with path.open("rb") as newer:
                return _follow(newer, path, service, target)
        if now.st_size < file.tell():
            file.seek(0)
        if alive:
            time.sleep(_POLL_SECONDS)
    return None


def _path(service: ServiceRecord, *, launcher: bool, previous: bool) -> Path:
    from gaudi_launch.core.services import service as engine
    from gaudi_launch.core.services.process import detach

    if launcher:
        return service.folder / detach.LOG
    path = service.folder / engine.LOG
    if previous:
        return earlier(path)
    return path
