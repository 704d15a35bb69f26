"""``gaudi-launch learn``: correct the speed model by this host's measurements."""

from __future__ import annotations

import typer

from gaudi_launch.cli.command_app import CommandApp

app = CommandApp()


@app.command()
def learn(
    results: list[str] | None = typer.Argument(
        None, metavar="RESULT...", help="Saved bench runs, engine logs, saved /metrics pages."
    ),
    service: str = typer.Option(
        "", "--service", metavar="NAME", help="The service of a log or a /metrics page."
    ),
    show: bool = typer.Option(False, "--show", help="Print the learned constants."),
    reset: bool = typer.Option(False, "--reset", help="Return to the shipped constants."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Correct the speed model by measurements of this host; each command then uses them.

    The shipped constants are the starting point: a few runs move them little, and a run that does
    not fit the others is left out. Each time makes a new version; --reset removes all.
    """
    from gaudi_launch.app import learn as use_case
    from gaudi_launch.cli.views import learn as view
    from gaudi_launch.errors import ExitCode, LaunchError

    files = results or []
    if [bool(files), show, reset].count(True) != 1:
        raise LaunchError("learn.one_of", ExitCode.USAGE)
    if reset:
        view.show_reset(use_case.reset(), as_json)
    elif show:
        view.show(use_case.current(), as_json)
    else:
        view.show_outcome(use_case.learn(files, service), as_json)
