"""``gaudi-launch kube``: show, log and delete Kubernetes objects by kubectl.

They are those of 'render kubernetes'.
"""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.endless import until_ctrl_c
from gaudi_launch.cli.shared_options import ALL
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text

app = CommandApp(
    no_args_is_help=True,
)

_NAMESPACE = typer.Option(
    "", "-N", "--namespace", metavar="NAME", help="Namespace (default: that of kubectl)."
)
_KUBECONFIG = typer.Option("", "--kubeconfig", metavar="FILE", help="kubectl's configuration.")
_CONTEXT = typer.Option("", "--context", metavar="NAME", help="Context in that configuration.")


@app.callback()
def _group() -> None:
    """Show, log and delete the objects of 'render kubernetes', with kubectl and your
    permissions."""


@app.command()
def status(
    name: str = typer.Argument(
        "", metavar="[NAME]", help="One deployment (default: all of gaudi-launch)."
    ),
    namespace: str = _NAMESPACE,
    kubeconfig: str = _KUBECONFIG,
    context: str = _CONTEXT,
    everything: bool = ALL,
    as_json: bool = JSON,
) -> None:
    """Show replicas and pods, with the reason for waiting: node, huge pages, image, warm-up."""
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.extensions.kubernetes.kube import case as kube
    from gaudi_launch.extensions.kubernetes.kube.view import show
    from gaudi_launch.extensions.kubernetes.kubectl import Kubectl

    found = kube.status(name, Kubectl(namespace, kubeconfig, context), Terminal())
    if as_json:
        emit_json({"schema": 1, "deployments": [each.to_json() for each in found]})
    else:
        show(found, complete=everything)


@app.command()
def logs(
    name: str = typer.Argument(..., metavar="NAME", help="The deployment."),
    namespace: str = _NAMESPACE,
    kubeconfig: str = _KUBECONFIG,
    context: str = _CONTEXT,
    follow: bool = typer.Option(False, "-f", "--follow", help="Follow new lines."),
    previous: bool = typer.Option(
        False, "--previous", help="Log of the container before the last restart."
    ),
    tail: str = typer.Option("1000", "--tail", metavar="N", help="Last lines of each pod."),
    pod: str = typer.Option("", "--pod", metavar="NAME", help="Only this pod."),
) -> None:
    """Print the engines' logs. '| gaudi-launch why -' explains a failed launch."""
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.extensions.kubernetes.kube import case as kube
    from gaudi_launch.extensions.kubernetes.kubectl import Kubectl

    access = Kubectl(namespace, kubeconfig, context)
    with until_ctrl_c():
        kube.logs(name, access, kube.LogOptions(tail, pod, follow, previous), Terminal())


@app.command()
def delete(
    name: str = typer.Argument(..., metavar="NAME", help="The deployment."),
    namespace: str = _NAMESPACE,
    kubeconfig: str = _KUBECONFIG,
    context: str = _CONTEXT,
    volumes: bool = typer.Option(
        False, "--volumes", help="Also delete its PVCs: weights and compiled graphs."
    ),
    yes: bool = typer.Option(False, "-y", "--yes", help="Do not ask for confirmation."),
) -> None:
    """Delete a deployment after listing its objects. PVCs are kept unless --volumes."""
    import sys

    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.extensions.kubernetes.kube import case as kube
    from gaudi_launch.extensions.kubernetes.kubectl import Kubectl

    access = Kubectl(namespace, kubeconfig, context)
    objects = kube.removal(name, access, Terminal(), volumes=volumes)
    for each in objects:
        print(each)
    if not yes:
        if not sys.stdin.isatty():
            raise LaunchError("kube.not_asked", ExitCode.USAGE)
        typer.confirm(text("kube.sure", count=len(objects)), abort=True, err=True)
    kube.remove(name, access, objects)
