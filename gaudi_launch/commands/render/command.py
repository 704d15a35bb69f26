"""``gaudi-launch render TARGET``: the plan of serve as files for another target.

Nothing is started.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.options import BriefCommand, Launch, LaunchOptions, record
from gaudi_launch.cli.table import listed
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.commands.render import case
from gaudi_launch.commands.render.case import (
    ContainerFileOptions,
    FileOptions,
    Options,
    RenderTarget,
    SeveralTarget,
)
from gaudi_launch.commands.render.options import STACK
from gaudi_launch.commands.render.view import show

app = CommandApp(
    no_args_is_help=True,
    help=(
        "Write the plan that serve would run as a script, a container or a unit; nothing is "
        "started."
    ),
)

_Files = record(FileOptions())
_ContainerFiles = record(ContainerFileOptions())


@app.command(cls=BriefCommand)
def script(files: FileOptions = _Files, options: LaunchOptions = Launch) -> None:
    """Write a bash script that starts the engine without gaudi-launch.

    The engine is bound to its CPUs.
    """
    from gaudi_launch.commands.render.targets import ScriptTarget

    _render(ScriptTarget(), None, files, options)


@app.command(cls=BriefCommand)
def docker(files: ContainerFileOptions = _ContainerFiles, options: LaunchOptions = Launch) -> None:
    """Write a 'docker run' script with the cards.

    It builds the image if none is published.
    """
    from gaudi_launch.commands.render.targets import DockerTarget

    _render(DockerTarget(), files.image, files, options)


@app.command(cls=BriefCommand)
def compose(
    stack: str = STACK,
    files: ContainerFileOptions = _ContainerFiles,
    options: LaunchOptions = Launch,
) -> None:
    """Write a compose file with one service, or all of a stack."""
    from gaudi_launch.commands.render.targets import ComposeTarget

    _render_any(ComposeTarget(), files.image, stack, files, options)


@app.command(cls=BriefCommand)
def quadlet(files: ContainerFileOptions = _ContainerFiles, options: LaunchOptions = Launch) -> None:
    """Write a Quadlet unit: systemd supervises podman's container."""
    from gaudi_launch.commands.render.targets import QuadletTarget

    _render(QuadletTarget(), files.image, files, options)


@app.command(cls=BriefCommand)
def systemd(
    stack: str = STACK,
    files: FileOptions = _Files,
    user: bool = typer.Option(False, "--user", help="A unit for 'systemctl --user'."),
    run_as: str | None = typer.Option(
        None, "--run-as", metavar="USER", help="The system unit's user (default: the current user)."
    ),
    with_tuning: bool = typer.Option(
        False, "--with-tuning", help="Also write a unit that runs 'doctor --fix' first."
    ),
    options: LaunchOptions = Launch,
) -> None:
    """Write a systemd service that is active when the engine is ready."""
    from gaudi_launch.commands.render.targets import SystemdTarget, unit_options

    unit = unit_options(user=user, run_as=run_as, with_tuning=with_tuning)
    _render_any(SystemdTarget(), unit, stack, files, options)


def _render(
    target: RenderTarget[Options], own: Options, files: FileOptions, options: LaunchOptions
) -> None:
    """Render a plan to a target, and show the files."""
    made = case.render(target, own, options, files.destination, Terminal())
    show(made, as_json=files.as_json)


def _render_any(
    target: SeveralTarget[Options],
    own: Options,
    stack: str,
    files: FileOptions,
    options: LaunchOptions,
) -> None:
    """Render a plan, or all of a stack, to a target, and show the files."""
    if not stack:
        _render(target, own, files, options)
        return
    read = partial(listed("stack plans"), Path(stack))
    made = case.render_file(target, own, read, options, files.destination, Terminal())
    show(made, as_json=files.as_json)
