"""``gaudi-launch cluster``: one engine over several hosts by Ray.

Plan, up, status, down.
"""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.console import emit_json
from gaudi_launch.cli.options import Launch, LaunchOptions, RecordCommand, record
from gaudi_launch.core.planning.parse import if_given, seconds
from gaudi_launch.extensions.cluster import case as cases
from gaudi_launch.extensions.cluster import view
from gaudi_launch.extensions.cluster.case import ClusterOptions, HostOptions

app = CommandApp(
    no_args_is_help=True, help="Run one engine on several hosts: plan, up, status, down."
)

_Hosts = record(HostOptions())
_Cluster = record(ClusterOptions())


@app.command(cls=RecordCommand)
def plan(
    cluster: ClusterOptions = _Cluster,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the commands to run yourself."),
    everything: bool = typer.Option(False, "--all", help="Every host, setting and warning."),
    as_json: bool = JSON,
    options: LaunchOptions = Launch,
) -> None:
    """Check all hosts and show the layout; start nothing.

    Hosts are queried over ssh; with snapshots of all hosts no connection is made.
    """
    unknown = any(each.snapshot is None for each in cases.members(cluster, options.python))
    case = cases.read(options, cluster, ask=unknown)
    if as_json:
        emit_json(view.to_json(case))
    elif dry_run:
        view.dry(case)
    else:
        view.show(case, complete=everything)


@app.command(cls=RecordCommand)
def up(
    cluster: ClusterOptions = _Cluster,
    ready_seconds: str = typer.Option(
        "", "--wait", metavar="TIME", help="Timeout: 90, 5m, 1h (default: none)."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the commands, start nothing."),
    as_json: bool = JSON,
    options: LaunchOptions = Launch,
) -> None:
    """Start Ray and the engine on every host.

    Missing files are copied first; it waits until ready and leaves all running.

    A failure or Ctrl-C stops everything that was started. 'cluster down' stops it later.
    """
    limit = if_given(seconds, "--wait", ready_seconds)
    case = cases.read(options, cluster, ask=True)
    if dry_run:
        if as_json:
            return emit_json(view.to_json(case))
        return view.dry(case)
    if not options.force:
        cases.check_ready(case)
    if not as_json:
        view.show(case, complete=False)
    cases.up(case, options, view.tell, ready_seconds=limit)
    if as_json:
        emit_json(view.to_json(case))
    return None


@app.command()
def status(
    name: str = typer.Option(
        "", "--name", metavar="NAME", help="Name of this cluster.", rich_help_panel="Hosts"
    ),
    as_json: bool = JSON,
) -> None:
    """Show every host's processes, Ray's state and the engine's. Exit code 0: all healthy, else
    1."""
    running, state = cases.status(name)
    view.show_status(running, state, as_json)
    raise typer.Exit(0 if state.whole else 1)


@app.command(cls=RecordCommand)
def down(
    hosts: HostOptions = _Hosts,
    python: str | None = typer.Option(
        None, "--python", metavar="PATH", help="The interpreter on the hosts."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the commands, stop nothing."),
    as_json: bool = JSON,
) -> None:
    """Stop the engine and this cluster's Ray on every host, nothing else. With --hosts or
    --inventory also for a cluster that was started from another machine."""
    name, ending = cases.to_end(hosts, python)
    if dry_run:
        return view.dry_down(ending, name, as_json)
    ended = cases.down(name, ending)
    view.show_down(ended, ending, as_json)
    if any(trouble is not None for trouble in ended.values()):
        raise typer.Exit(1)
    return None
