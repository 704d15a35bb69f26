"""``gaudi-launch restart``: the same plan on the same cards, again."""

from __future__ import annotations

import os
import sys

import typer

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def restart(
    name: str = typer.Argument(..., metavar="NAME", help="A service, as 'ps -a' shows it."),
    drain: float = typer.Option(30.0, "--drain", metavar="SECONDS", help="Wait so long for running requests."),
    no_wait: bool = typer.Option(False, "--no-wait", help="Return at once, not when it answers."),
) -> None:
    """Stop a service if it runs, and start it as it was, without a terminal of its own."""
    from gaudi_launch.cli.stop import end
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text
    from gaudi_launch.services import detach, launch, state
    from gaudi_launch.services.job import ServiceJob
    from gaudi_launch.services.registry import find

    service = find(name)
    job = ServiceJob.from_json(state.read(service.folder, "job.json"), service.folder / "job.json")
    missing = detach.missing_secrets(job, os.environ)
    if missing:
        # refused before the running one is ended
        raise LaunchError("services.secrets", ExitCode.USAGE, name=name, names=", ".join(missing))
    if not 0 <= drain <= 86400:
        raise LaunchError("services.drain", ExitCode.USAGE, found=drain)
    # an engine that finds its card still taken fails: the driver takes a moment to let go
    _, busy = end(service, drain)
    if busy:
        cards = ",".join(map(str, busy))
        raise LaunchError("services.cards_taken", ExitCode.MACHINE, name=name, cards=cards)
    launch.start_detached(job, None, os.environ)
    if no_wait:
        print(text("services.starting", name=name), file=sys.stderr)
        return
    from gaudi_launch.cli.waiting import until_ready

    ready = until_ready(name)
    print(text("services.is_ready", name=name, model=ready.state.get("served") or "-", url=ready.url))
