"""``gaudi-launch render kubernetes``."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer
import typer.main

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand, ReplicasCommand, record
from gaudi_launch.cli.table import listed
from gaudi_launch.commands.render.options import OUTPUT_PANEL, STACK, TO
from gaudi_launch.commands.render.view import show
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.render.deliver import Destination, deliver
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions

_Cluster = record(KubernetesOptions())
app = CommandApp()


@app.command(cls=ReplicasCommand)
def kubernetes(
    out: str = TO,
    helm: str = typer.Option(
        "", "--helm", metavar="DIR", help="Write a Helm chart.", rich_help_panel=OUTPUT_PANEL
    ),
    as_json: bool = typer.Option(
        False, "--json", help="Files and notes as one JSON object.", rich_help_panel=OUTPUT_PANEL
    ),
    stack: str = STACK,
    cluster: KubernetesOptions = _Cluster,
    options: LaunchOptions = Launch,
) -> None:
    """Write a Deployment, LeaderWorkerSet or RayService.

    PVCs, probes, scaling and Services are included.

    Everything is checked against the API's own schemas before a file is written.
    """
    from gaudi_launch.extensions.kubernetes.case import render_kubernetes, render_several

    if helm and out:
        raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one="--helm", other="--to")
    if stack:
        read = listed("stack plans")
        rendered, release = render_several(Path(stack), read, options, cluster, helm=bool(helm))
    else:
        rendered, release = render_kubernetes(options, cluster, read_with, helm=bool(helm))
    # a chart is a folder, whatever it contains
    output = f"{helm}/" if helm else out or None
    to = Destination(output, release, several=as_json)
    show(deliver(rendered, "kubernetes", to, force=options.force), as_json=as_json)


# --- the launch options inside the value of --with, parsed as for any command

_parser = CommandApp()


@_parser.command(cls=RecordCommand)
def _options(options: LaunchOptions = Launch) -> LaunchOptions:
    """Read the options of ``--with`` as those of any command."""
    return options


def read_with(text: str) -> LaunchOptions:
    """Return the options in ``--with '-w MODEL -n 1'``.

    Raises LaunchError (USAGE), or what the parser raises.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise LaunchError("kubernetes.words", ExitCode.USAGE, found=text, why=str(error)) from None
    command = typer.main.get_command(_parser)
    found = command(args=words, prog_name="--with", standalone_mode=False)
    if not isinstance(found, LaunchOptions):
        # --help has printed its text
        raise typer.Exit()
    return found
