"""``gaudi-launch cluster``: one engine over several hosts by Ray.

Plan, up, status, down.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gaudi_launch.cli.command_app import CommandApp
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand

if TYPE_CHECKING:
    from gaudi_launch.app.cluster import ClusterOptions

app = CommandApp(no_args_is_help=True, help="Run one engine on several hosts: plan, up, status, down.")

_PANEL = "Hosts"
Hosts = typer.Option(
    "", "--hosts", metavar="H1,H2", help="Hosts for ssh, the head first; H1=SNAPSHOT reads a file.",
    rich_help_panel=_PANEL,
)  # fmt: skip
Inventory = typer.Option(None, "--inventory", metavar="FILE", help="Hosts in a YAML file.", rich_help_panel=_PANEL)
Name = typer.Option("", "--name", metavar="NAME", help="Name of this cluster.", rich_help_panel=_PANEL)
Tensor = typer.Option(
    "", "--tensor-parallel", metavar="N", help="Tensor parallel size (default: automatic).", rich_help_panel=_PANEL
)
Pipeline = typer.Option("", "--pipeline-parallel", metavar="N", help="Pipeline stages.", rich_help_panel=_PANEL)
Data = typer.Option("", "--data-parallel", metavar="N", help="Number of engines.", rich_help_panel=_PANEL)
RayPort = typer.Option("", "--ray-port", metavar="PORT", help="Ray's port (default 8850).", rich_help_panel=_PANEL)
Interface = typer.Option("", "--interface", metavar="NAME", help="Interface between hosts.", rich_help_panel=_PANEL)
Enter = typer.Option(
    "",
    "--enter",
    metavar="COMMAND",
    help="Command that enters the container: 'docker exec -i NAME'.",
    rich_help_panel=_PANEL,
)
Json = typer.Option(False, "--json", help="One JSON object on stdout.")


@app.command(cls=RecordCommand)
def plan(
    hosts: str = Hosts,
    inventory: Path | None = Inventory,
    name: str = Name,
    tensor: str = Tensor,
    pipeline: str = Pipeline,
    data: str = Data,
    ray_port: str = RayPort,
    interface: str = Interface,
    enter: str = Enter,
    ask: bool = typer.Option(False, "--ask", help="Also connect to hosts with a snapshot.", rich_help_panel=_PANEL),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the commands to run yourself."),
    as_json: bool = Json,
    options: LaunchOptions = Launch,
) -> None:
    """Check every host and their differences, and show the layout; start nothing.

    Hosts are queried over ssh; with snapshots of all hosts no connection is made.
    """
    from gaudi_launch.app import cluster as cases
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.cluster import dry, show, to_json

    words = cases.ClusterOptions(hosts, inventory, name, tensor, pipeline, data, ray_port, interface, enter)
    case = cases.read(options, words, ask=ask or _some_unknown(words, options))
    if as_json:
        emit_json(to_json(case))
    elif dry_run:
        dry(case)
    else:
        show(case)


def _some_unknown(words: ClusterOptions, options: LaunchOptions) -> bool:
    from gaudi_launch.app.cluster import members

    return any(member.snapshot is None for member in members(words, options.python))


@app.command(cls=RecordCommand)
def up(
    hosts: str = Hosts,
    inventory: Path | None = Inventory,
    name: str = Name,
    tensor: str = Tensor,
    pipeline: str = Pipeline,
    data: str = Data,
    ray_port: str = RayPort,
    interface: str = Interface,
    enter: str = Enter,
    no_copy: bool = typer.Option(False, "--no-copy", help="Copy no model and no recipes.", rich_help_panel=_PANEL),
    ready_seconds: str = typer.Option("", "--wait", metavar="TIME", help="Timeout: 90, 5m, 1h (default: none)."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the commands, start nothing."),
    as_json: bool = Json,
    options: LaunchOptions = Launch,
) -> None:
    """Copy missing files, start Ray and the engine on every host, wait until ready, and leave it running.

    A failure or Ctrl-C stops everything that was started. 'cluster down' stops it later.
    """
    from gaudi_launch.app import cluster as cases
    from gaudi_launch.cli.console import emit_json
    from gaudi_launch.cli.views.cluster import dry, show, tell, to_json
    from gaudi_launch.planning.parse import seconds

    words = cases.ClusterOptions(
        hosts, inventory, name, tensor, pipeline, data, ray_port, interface, enter, not no_copy
    )
    limit = seconds("--wait", ready_seconds) if ready_seconds else None
    case = cases.read(options, words, ask=True)
    if dry_run:
        return emit_json(to_json(case)) if as_json else dry(case)
    if not options.force:
        cases.check_ready(case)
    if not as_json:
        show(case)
    cases.up(case, options, tell, ready_seconds=limit)
    if as_json:
        emit_json(to_json(case))
    return None


@app.command()
def status(
    name: str = Name,
    as_json: bool = Json,
) -> None:
    """Show every host's processes, Ray's state and the engine's. Exit code 0: all healthy, else 1."""
    from gaudi_launch.app import cluster as cases
    from gaudi_launch.cli.views.cluster import show_status

    running, state = cases.status(name)
    show_status(running, state, as_json)
    raise typer.Exit(0 if state.whole else 1)


@app.command()
def down(
    name: str = Name,
    hosts: str = Hosts,
    inventory: Path | None = Inventory,
    enter: str = Enter,
    python: str | None = typer.Option(None, "--python", help="The interpreter on the hosts."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the commands, stop nothing."),
    as_json: bool = Json,
) -> None:
    """Stop the engine and this cluster's Ray on every host, nothing else. With --hosts or --inventory
    also for a cluster that was started from another machine."""
    from gaudi_launch.app import cluster as cases
    from gaudi_launch.cli.views.cluster import dry_down, show_down

    words = cases.ClusterOptions(hosts, inventory, name, "", "", "", "", "", enter)
    cluster = cases.to_end(words, python)
    if dry_run:
        return dry_down(cluster.members, cluster.name, as_json)
    ended = cases.down(cluster)
    show_down(ended, cluster.members, as_json)
    if any(part.trouble is not None for part in ended):
        raise typer.Exit(1)
    return None
