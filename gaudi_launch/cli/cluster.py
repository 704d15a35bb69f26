"""``gaudi-launch cluster``: one engine over several hosts by Ray; plan, up, status, down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.options import shared

if TYPE_CHECKING:
    from gaudi_launch.cli.cluster_case import Words
    from gaudi_launch.fleet.inventory import Member
    from gaudi_launch.messages import Message

app = typer.Typer(no_args_is_help=True, help="One engine over several hosts: plan, up, status, down.")

_PANEL = "Hosts"
Hosts = typer.Option(
    "", "--hosts", metavar="H1,H2", help="Hosts for ssh, the head first; H1=SNAPSHOT reads a file.",
    rich_help_panel=_PANEL,
)  # fmt: skip
Inventory = typer.Option(None, "--inventory", metavar="FILE", help="Hosts in a YAML file.", rich_help_panel=_PANEL)
Name = typer.Option("", "--name", metavar="NAME", help="Name of this cluster.", rich_help_panel=_PANEL)
Tensor = typer.Option("", "--tensor-parallel", metavar="N", help="Default: our choice.", rich_help_panel=_PANEL)
Pipeline = typer.Option("", "--pipeline-parallel", metavar="N", help="Stages.", rich_help_panel=_PANEL)
Data = typer.Option("", "--data-parallel", metavar="N", help="Engines side by side.", rich_help_panel=_PANEL)
RayPort = typer.Option("", "--ray-port", metavar="PORT", help="Ray's port (default 8850).", rich_help_panel=_PANEL)
Interface = typer.Option("", "--interface", metavar="NAME", help="Interface between hosts.", rich_help_panel=_PANEL)
Enter = typer.Option(
    "", "--enter", metavar="WORDS", help="Into the container: 'docker exec -i NAME'.", rich_help_panel=_PANEL
)
Json = typer.Option(False, "--json", help="One JSON object on stdout.")


@app.command()
@shared
def plan(
    asked: dict[str, Any],
    hosts: str = Hosts,
    inventory: Path | None = Inventory,
    name: str = Name,
    tensor: str = Tensor,
    pipeline: str = Pipeline,
    data: str = Data,
    ray_port: str = RayPort,
    interface: str = Interface,
    enter: str = Enter,
    ask: bool = typer.Option(
        False, "--ask", help="Connect to hosts that have a snapshot too.", rich_help_panel=_PANEL
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the commands, for your own tools."),
    as_json: bool = Json,
) -> None:
    """Verdict on every host, what differs between them, the layout, each host's part; starts nothing.

    Hosts are asked over ssh; with snapshots of all of them nothing is connected to.
    """
    from gaudi_launch.cli import cluster_case as cases
    from gaudi_launch.cli.cluster_view import dry, show, to_json
    from gaudi_launch.cli.output import emit_json

    words = cases.Words(hosts, inventory, name, tensor, pipeline, data, ray_port, interface, enter)
    case = cases.read(asked, words, ask=ask or _some_unknown(words, asked))
    if as_json:
        emit_json(to_json(case))
    elif dry_run:
        dry(case)
    else:
        show(case)


def _some_unknown(words: Words, asked: dict[str, Any]) -> bool:
    from gaudi_launch.cli.cluster_case import members

    return any(member.snapshot is None for member in members(words, asked["python"]))


@app.command()
@shared
def up(
    asked: dict[str, Any],
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
    ready_seconds: str = typer.Option("", "--wait", metavar="SECONDS", help="Give up after (default: never)."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Look, print the commands, start nothing."),
    as_json: bool = Json,
) -> None:
    """Copy what is missing, start Ray and the engine on every host, wait until it answers, and leave it running.

    A failure or Ctrl-C on the way ends all that was started. 'cluster down' ends it later.
    """
    import os
    import time

    from gaudi_launch.cli import cluster_case as cases
    from gaudi_launch.cli.cluster_view import dry, show, to_json
    from gaudi_launch.cli.output import console, emit_json
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.fleet import run
    from gaudi_launch.fleet.waiting import Waits
    from gaudi_launch.planning.asked import number, with_secret_moved

    words = cases.Words(hosts, inventory, name, tensor, pipeline, data, ray_port, interface, enter, not no_copy)
    limit = float(number("--wait", ready_seconds)) if ready_seconds else None
    case = cases.read(asked, words, ask=True)
    if dry_run:
        return emit_json(to_json(case)) if as_json else dry(case)
    blockers = case.blockers
    if blockers and not asked["force"]:
        lines = "\n".join(f"  {message.render()}" for message in blockers)
        raise LaunchError("cluster.blocked", ExitCode.MACHINE, detail=lines, count=len(blockers))
    if not as_json:
        show(case)
    out = console(stderr=True)

    def tell(message: Message) -> None:
        out.print(f"{time.strftime('%H:%M:%S')} {message.render()}", markup=False, soft_wrap=True)

    from gaudi_launch.cli.options import to_request

    exported = with_secret_moved(to_request(asked, dict(os.environ))).environment
    folder = cases.folder_of(case.cluster.name)
    run.up(case.cluster, case.copies, cases.secrets_of(dict(exported)), folder, tell, Waits(ready=limit))
    if as_json:
        emit_json(to_json(case))


@app.command()
def status(
    name: str = Name,
    as_json: bool = Json,
) -> None:
    """Every host's processes, Ray's own view, and whether the engine answers. Exit code 0: all is well, else 1."""
    import os

    from gaudi_launch.cli.cluster_case import DEFAULT_NAME, folder_of
    from gaudi_launch.cli.cluster_view import show_status
    from gaudi_launch.fleet import run
    from gaudi_launch.fleet.running import remembered

    known = remembered(folder_of(name or DEFAULT_NAME))
    state = run.status(known, os.environ.get("VLLM_API_KEY"))
    show_status(known, state, as_json)
    raise typer.Exit(0 if state.whole else 1)


@app.command()
def down(
    name: str = Name,
    hosts: str = Hosts,
    inventory: Path | None = Inventory,
    enter: str = Enter,
    python: str | None = typer.Option(None, "--python", help="The interpreter on the hosts."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the commands, end nothing."),
    as_json: bool = Json,
) -> None:
    """End the engine and this cluster's Ray on every host; what others started stays. With --hosts or --inventory
    also where this machine did not bring it up."""
    from gaudi_launch.cli import cluster_case as cases
    from gaudi_launch.cli.cluster_view import dry_down, show_down
    from gaudi_launch.fleet import run
    from gaudi_launch.fleet.running import FILE_NAME, remembered

    folder = cases.folder_of(name or cases.DEFAULT_NAME)
    known: tuple[Member, ...]
    if hosts or inventory is not None:
        words = cases.Words(hosts, inventory, name, "", "", "", "", "", enter)
        known = cases.members(words, python)
    else:
        known = remembered(folder).members
    if dry_run:
        return dry_down(known, folder.name, as_json)
    told = run.down(known, folder.name)
    show_down(told, known, as_json)
    if any(trouble is not None for _, _, trouble in told):
        raise typer.Exit(1)
    # what is down needs no looking at
    (folder / FILE_NAME).unlink(missing_ok=True)
