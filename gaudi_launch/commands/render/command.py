"""``gaudi-launch render TARGET``: the plan of serve as files for another target.

Nothing is started.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand, record
from gaudi_launch.core.render.render import ContainerFileOptions, Destination, FileOptions
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
from gaudi_launch.extensions.watch.monitoring.case import EXPORTER

if TYPE_CHECKING:
    from gaudi_launch.core.render.render import RenderedFiles

app = CommandApp(
    no_args_is_help=True,
    help=(
        "Write the plan that serve would run as a script, a container or a unit; nothing is "
        "started."
    ),
)

_Files = record(FileOptions())
_ContainerFiles = record(ContainerFileOptions())
_OUTPUT_PANEL = "Output"
_Cluster = record(KubernetesOptions())
_TO = typer.Option(
    "",
    "--to",
    metavar="DIR|FILE",
    help="Target folder or file (default: stdout).",
    rich_help_panel=_OUTPUT_PANEL,
)
_STACK = typer.Option(
    "",
    "--stack",
    metavar="FILE",
    help="All models of a stack file and their gateway, instead of one model.",
    rich_help_panel=_OUTPUT_PANEL,
)


@app.command(cls=RecordCommand)
def kubernetes(
    out: str = _TO,
    helm: str = typer.Option(
        "", "--helm", metavar="DIR", help="Write a Helm chart.", rich_help_panel=_OUTPUT_PANEL
    ),
    as_json: bool = typer.Option(
        False, "--json", help="Files and notes as one JSON object.", rich_help_panel=_OUTPUT_PANEL
    ),
    stack: str = _STACK,
    cluster: KubernetesOptions = _Cluster,
    options: LaunchOptions = Launch,
) -> None:
    """Write a plan as Deployment, LeaderWorkerSet or RayService, with PVCs, probes, scaling and
    Services.

    Everything is checked against the API's own schemas before a file is written.
    """
    from gaudi_launch.commands.render.with_options import read_with
    from gaudi_launch.core.base.errors import ExitCode, LaunchError
    from gaudi_launch.core.render.render import deliver
    from gaudi_launch.extensions.kubernetes.case import KubernetesForm, render_kubernetes
    from gaudi_launch.extensions.stack import stack_render

    if helm and out:
        raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one="--helm", other="--to")
    form = KubernetesForm(read_with, helm=bool(helm))
    if stack:
        rendered, release = stack_render.kubernetes(Path(stack), options, cluster, form)
    else:
        rendered, release = render_kubernetes(options, cluster, form)
    # a chart is a folder, whatever it contains
    output = f"{helm}/" if helm else out or None
    to = Destination(output, release, several=as_json)
    _show(deliver(rendered, "kubernetes", to, force=options.force), as_json)


@app.command(cls=RecordCommand)
def script(files: FileOptions = _Files, options: LaunchOptions = Launch) -> None:
    """Write a bash script that starts the engine, bound to its CPUs; it runs without
    gaudi-launch."""
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.core.render import render

    _show(render.script(options, files.destination, Terminal()), files.as_json)


@app.command(cls=RecordCommand)
def docker(files: ContainerFileOptions = _ContainerFiles, options: LaunchOptions = Launch) -> None:
    """Write a 'docker run' script with the cards; it builds the image if none is published."""
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.core.render import render

    _show(render.docker(options, files.image, files.destination, Terminal()), files.as_json)


@app.command(cls=RecordCommand)
def compose(
    stack: str = _STACK,
    files: ContainerFileOptions = _ContainerFiles,
    options: LaunchOptions = Launch,
) -> None:
    """Write a compose file with one service and its health check, or with all of a stack."""
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.core.render import render
    from gaudi_launch.extensions.stack import stack_render

    to = files.destination
    if stack:
        made = stack_render.compose(Path(stack), options, files.image, to, Terminal())
    else:
        made = render.compose(options, files.image, to, Terminal())
    _show(made, files.as_json)


@app.command(cls=RecordCommand)
def quadlet(files: ContainerFileOptions = _ContainerFiles, options: LaunchOptions = Launch) -> None:
    """Write a Quadlet unit: podman runs the container, systemd supervises it."""
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.core.render import render

    _show(render.quadlet(options, files.image, files.destination, Terminal()), files.as_json)


@app.command(cls=RecordCommand)
def systemd(
    stack: str = _STACK,
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
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.core.render import render
    from gaudi_launch.extensions.stack import stack_render

    unit = render.SystemdOptions(user, run_as, with_tuning)
    to = files.destination
    if stack:
        made = stack_render.systemd(Path(stack), options, unit, to, Terminal())
    else:
        made = render.systemd(options, unit, to, Terminal())
    _show(made, files.as_json)


@app.command(name="ray-serve", cls=RecordCommand)
def ray_serve(
    out: str = _TO,
    check: str = typer.Option(
        "",
        "--check",
        metavar="FILE",
        help="Check this Serve config for settings that Ray silently ignores; write nothing.",
        rich_help_panel=_OUTPUT_PANEL,
    ),
    as_json: bool = typer.Option(
        False, "--json", help="The files as one JSON object.", rich_help_panel=_OUTPUT_PANEL
    ),
    stack: str = _STACK,
    options: LaunchOptions = Launch,
) -> None:
    """Write a Serve config for a running Ray: replicas of a model, or a stack with its router."""
    from gaudi_launch.cli.terminal import Terminal
    from gaudi_launch.commands.render.view import show_problems
    from gaudi_launch.core.base.errors import ExitCode, LaunchError
    from gaudi_launch.core.render import render
    from gaudi_launch.extensions.stack import stack_render

    if check:
        for name, given in (("--stack", stack), ("--to", out)):
            if given:
                raise LaunchError("kubernetes.not_with", ExitCode.USAGE, one=name, other="--check")
        stack_render.refuse_beside(options, "--check")
        problems = render.check_ray_serve(Path(check))
        show_problems(check, problems, as_json=as_json)
        if problems:
            raise typer.Exit(int(ExitCode.FAILED))
        return
    to = Destination(out or None, several=as_json)
    if stack:
        made = stack_render.ray_serve(Path(stack), options, to)
    else:
        made = render.ray_serve(options, to, Terminal())
    _show(made, as_json)


@app.command()
def monitoring(
    out: str = typer.Option("", "--to", metavar="DIR", help="Target folder."),
    target: str = typer.Option(
        EXPORTER, "--target", metavar="HOST:PORT,...", help="Addresses of the exporters to scrape."
    ),
    force: bool = typer.Option(False, "--force", help="Replace existing files."),
    as_json: bool = typer.Option(False, "--json", help="The files as one JSON object."),
) -> None:
    """Write alert rules for Prometheus, a Grafana dashboard and a scrape config for the
    exporter's metrics."""
    from gaudi_launch.extensions.watch.monitoring.case import render_monitoring

    to = Destination(f"{out.rstrip('/')}/" if out else None, several=as_json)
    _show(render_monitoring(target, to, force=force), as_json)


def _show(files: RenderedFiles, as_json: bool) -> None:
    from gaudi_launch.commands.render.view import show

    show(files, as_json=as_json)
