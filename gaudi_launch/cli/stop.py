"""``gaudi-launch stop``: end services, or processes that services left behind."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gaudi_launch.services.orphans import Orphan
    from gaudi_launch.services.registry import Service
    from gaudi_launch.services.stop import Stopped

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def stop(
    names: list[str] = typer.Argument(None, metavar="[NAME]...", help="Services, as 'ps' shows them."),
    everything: bool = typer.Option(False, "--all", help="Every living service of yours."),
    orphans: bool = typer.Option(False, "--orphans", help="Processes whose launcher died."),
    drain: float = typer.Option(30.0, "--drain", metavar="SECONDS", help="Wait so long for running requests."),
    forget: bool = typer.Option(False, "--forget", help="Remove its folder with state and logs, too."),
    yes: bool = typer.Option(False, "-y", "--yes", help="End orphans without asking."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Wait for running requests, end the engine and all it started, and look whether the cards are free."""
    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.services.registry import find, services

    if sum((bool(names), everything, orphans)) != 1:
        raise LaunchError("services.stop_what", ExitCode.USAGE)
    if not 0 <= drain <= 86400:
        raise LaunchError("services.drain", ExitCode.USAGE, found=drain)
    if orphans:
        return _orphans(yes, as_json)
    # every name is known before the first is ended
    chosen = [service for service in services() if service.alive] if everything else [find(name) for name in names]
    document, failed = [], []
    for service in chosen:
        try:
            document.append(_one(service, drain, forget))
        except LaunchError as error:
            # one that cannot be ended leaves the others to be ended
            failed.append(error)
    if failed:
        *others, last = failed
        for other in others:
            print(str(other), file=sys.stderr)
        raise last
    if as_json:
        emit_json({"schema": 1, "stopped": document})
    elif not chosen:
        from gaudi_launch.messages import text

        print(text("services.none"))
    return None


def _one(service: Service, drain: float, forget: bool) -> dict[str, Any]:
    from gaudi_launch.messages import text

    done, busy = end(service, drain)
    if forget:
        import shutil

        shutil.rmtree(service.folder, ignore_errors=True)
    if not done.was_alive and not done.orphans:
        print(text("services.was_not_alive", name=service.name), file=sys.stderr)
    else:
        print(text("services.ended" if busy else "services.stopped", name=service.name), file=sys.stderr)
    if done.left:
        print(text("services.cut", count=done.left), file=sys.stderr)
    if busy:
        cards = ",".join(map(str, busy))
        print(text("services.cards_busy", cards=cards), file=sys.stderr)
    return {
        "name": service.name,
        "was_alive": done.was_alive,
        "requests_cut": done.left,
        "orphans": [orphan.to_json() for orphan in done.orphans],
        "cards_busy": busy,
    }


def end(service: Service, drain: float) -> tuple[Stopped, list[int]]:
    """End a service, telling what is waited for; with those of its cards that somebody still holds.

    Raises LaunchError when something of it cannot be ended.
    """
    from gaudi_launch.messages import text
    from gaudi_launch.services.stop import still_busy, stop

    shown = ""

    def say(what: str, value: float) -> None:
        nonlocal shown
        if what != shown:
            shown = what
            print(
                text(f"services.stop_{what}", name=service.name, count=f"{value:.0f}"), file=sys.stderr, flush=True
            )

    done = stop(service, drain, say)
    if done.deaf:
        raise _left(done.deaf)
    return done, still_busy(service.modules)


def _orphans(yes: bool, as_json: bool) -> None:
    from pathlib import Path

    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text
    from gaudi_launch.services.orphans import end, orphans
    from gaudi_launch.services.stop import tidy

    found = orphans()
    if not as_json or not yes:
        _show(found)
    if found and not yes:
        if not sys.stdin.isatty():
            raise LaunchError("services.orphans_yes", ExitCode.USAGE, count=len(found))
        if not typer.confirm(text("services.orphans_ask", count=len(found)), err=True):
            raise typer.Exit(int(ExitCode.INTERRUPTED))
    left = end(found)
    for folder in {orphan.service for orphan in found}:
        tidy(Path(folder))
    if as_json:
        emit_json(
            {
                "schema": 1,
                "ended": [o.to_json() for o in found if o not in left],
                "left": [o.to_json() for o in left],
            }
        )
    elif found:
        print(text("services.orphans_ended", count=len(found) - len(left)), file=sys.stderr)
    if left:
        raise _left(left)


def _left(orphans: Sequence[Orphan]) -> Exception:
    from gaudi_launch.errors import ExitCode, LaunchError

    pids = ", ".join(str(orphan.process.pid) for orphan in orphans)
    return LaunchError("services.orphans_left", ExitCode.FAILED, pids=pids)


def _show(found: list[Orphan]) -> None:
    from gaudi_launch.cli.output import console, table
    from gaudi_launch.messages import text

    out = console(stderr=True)
    if not found:
        out.print(text("services.no_orphans"))
        return
    rows = [(str(o.process.pid), str(o.to_json()["service"]), o.command) for o in found]
    out.print(table("", text("services.orphan_columns").split("|"), rows, right=(0,)))
