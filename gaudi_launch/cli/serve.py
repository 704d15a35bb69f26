"""``gaudi-launch serve``: cards, plan, engine, warm-up, answer; in the foreground until Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.options import shared
from gaudi_launch.cli.warmed import Once, Warmed
from gaudi_launch.errors import LaunchError
from gaudi_launch.messages import text

if TYPE_CHECKING:
    from gaudi_launch.cli.options import Prepared
    from gaudi_launch.planning.plan import Plan
    from gaudi_launch.recipe_cache.use import Cached
    from gaudi_launch.services.supervise import Outcome

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
@shared
def serve(
    asked: dict[str, Any],
    name: str | None = typer.Option(None, "--name", help="The service's name (default: from model and port)."),
    no_doctor: bool = typer.Option(False, "--no-doctor", help="Start although the machine's check fails."),
    quiet: bool = typer.Option(False, "--quiet", help="Progress only, without the engine's own lines."),
    patience: str | None = typer.Option(
        None, "--phase-timeout", metavar="SECONDS", help="Longest time without progress in any phase."
    ),
) -> None:
    """Start a model and stay with it: cards, plan, engine, warm-up, answer.

    -w demo is a small model that needs no card and no download from a hub.
    """
    outcome, log, _ = start(asked, name, no_doctor=no_doctor, quiet=quiet, patience=patience)
    _finish(outcome, log)


def start(
    asked: dict[str, Any],
    name: str | None = None,
    *,
    no_doctor: bool = False,
    quiet: bool = False,
    patience: str | None = None,
    once: bool = False,
) -> tuple[Outcome, Path, Plan]:
    """Everything of serve but its end: the outcome, the log and the plan. ``once`` stops it when it is ready."""
    from gaudi_launch.cli.options import prepare
    from gaudi_launch.planning.asked import number
    from gaudi_launch.services import launch, state
    from gaudi_launch.services.supervise import LIMITS

    limits = dict(LIMITS)
    if patience is not None:
        limits = dict.fromkeys(limits, float(number("--phase-timeout", patience)))
    if name is not None:
        state.check_name(name)
    prepared = prepare(asked, must_exist=True)
    launch.check_engine(prepared.engine, prepared.installed)
    launch.check_model(prepared.model, prepared.request)
    if prepared.engine.needs_cards:
        from gaudi_launch.host.machine import load
        from gaudi_launch.paths import machine_root
        from gaudi_launch.planning.planner import place
        from gaudi_launch.services.reservation import claim

        request, engine = prepared.request, prepared.engine
        # refuse what cannot be before waiting for anybody's cards, and fetch an image before holding them
        first = prepared.plan()
        if first.container is not None:
            from gaudi_launch.services.containers import make_ready

            make_ready(first.container, _say)
        with claim(
            lambda: load(asked["machine"]), lambda host: place(request, host, engine), machine_root()
        ) as chosen:
            return _run(prepared, prepared.plan(chosen), name, no_doctor, quiet, limits, once)
    return _run(prepared, prepared.plan(), name, no_doctor, quiet, limits, once)


def _run(
    prepared: Prepared,
    plan: Plan,
    name: str | None,
    no_doctor: bool,
    quiet: bool,
    limits: dict[str, float],
    once: bool,
) -> tuple[Outcome, Path, Plan]:
    import contextlib

    from gaudi_launch.recipe_cache.use import without_cache
    from gaudi_launch.services import launch, state

    launch.check_port(plan)
    _host, port = launch.address(plan)
    service = name or state.default_name(prepared.model.name, str(port))
    log = state.service_dir(service) / "engine.log"
    if not no_doctor:
        from gaudi_launch.doctor import stop_on_failures

        stop_on_failures(prepared.findings(plan))
    plan = prepared.trusted(plan)
    cached = prepared.cached(plan)
    with contextlib.ExitStack() as held:
        screen = _screen(cached.plan if cached is not None else plan, str(log), quiet)
        held.callback(screen.close)
        watcher: Any = screen
        if cached is not None:
            try:
                keeper = held.enter_context(_kept(cached))
            except LaunchError as error:
                # a cache that cannot be used costs a warm-up, not the service
                _say(text("cache.unusable", why=str(error)))
                plan = without_cache(plan)
            else:
                plan, watcher = cached.plan, Warmed(screen, keeper)
        screen.begin(plan)
        if once:
            watcher = Once(watcher)
        outcome = launch.run(plan, prepared.request, service, watcher, limits)
    return outcome, log, plan


def _kept(cached: Cached) -> Any:
    from gaudi_launch.recipe_cache.use import kept

    return kept(cached, _say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _screen(plan: Plan, log: str, quiet: bool) -> Any:
    from gaudi_launch.cli.screen import Screen

    return Screen(plan, log, quiet)


def _finish(outcome: Outcome, log: Path) -> None:
    from gaudi_launch.errors import ExitCode
    from gaudi_launch.services.launch import failure

    if outcome.kind != "stopped":
        raise failure(outcome, log)
    print(text("serve.stopped"), file=sys.stderr)
    raise typer.Exit(int(ExitCode.INTERRUPTED))
