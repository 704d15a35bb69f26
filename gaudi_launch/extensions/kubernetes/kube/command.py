"""``gaudi-launch kube``: show, log and delete Kubernetes objects by kubectl.

They are those of 'render kubernetes'.
"""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.endless import until_ctrl_c
from gaudi_launch.cli.record_options import RecordCommand, record
from gaudi_launch.cli.shared_options import ALL
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.extensions.kubernetes.kube import case as kube
from gaudi_launch.extensions.kubernetes.kube.case import LogOptions
from gaudi_launch.extensions.kubernetes.kubectl import Kubectl

app = CommandApp(no_args_is_help=True)

_Access = record(Kubectl())
_Logs = record(LogOptions())


@app.callback()
def _group() -> None:
    """Show, log and delete the objects of 'render kubernetes', with kubectl and your
    permissions."""


@app.command(cls=RecordCommand)
def status(
    name: str = typer.Argument(
        "", metavar="[NAME]", help="One deployment (default: all of gaudi-launch)."
    ),
    access: Kubectl = _Access,
    everything: bool = ALL,
    as_json: bool = JSON,
) -> None:
    """Show replicas and pods, and what each one waits for.

    That is a node, huge pages, the image or the warm-up.
    """
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.extensions.kubernetes.kube.view import show

    found = kube.status(name, access, Terminal())
    if as_json:
        emit_json({"schema": 1, "deployments": [each.to_json() for each in found]})
    else:
        show(found, complete=everything)


@app.command(cls=RecordCommand)
def logs(
    name: str = typer.Argument(..., metavar="NAME", help="The deployment."),
    access: Kubectl = _Access,
    options: LogOptions = _Logs,
) -> None:
    """Print the engines' logs. '| gaudi-launch why -' explains a failed launch."""
    with until_ctrl_c():
        kube.logs(name, access, options, Terminal())


@app.command(cls=RecordCommand)
def delete(
    name: str = typer.Argument(..., metavar="NAME", help="The deployment."),
    access: Kubectl = _Access,
    volumes: bool = typer.Option(
        False, "--volumes", help="Also delete its PVCs: weights and compiled graphs."
    ),
    yes: bool = typer.Option(False, "-y", "--yes", help="Do not ask for confirmation."),
) -> None:
    """Delete a deployment after listing its objects. PVCs are kept unless --volumes."""
    import sys

    objects = kube.removal(name, access, Terminal(), volumes=volumes)
    for each in objects:
        print(each)
    if not yes:
        if not sys.stdin.isatty():
            raise LaunchError("kube.not_asked", ExitCode.USAGE)
        typer.confirm(text("kube.sure", count=len(objects)), abort=True, err=True)
    kube.remove(name, access, objects)
