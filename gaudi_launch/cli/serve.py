"""``gaudi-launch serve``: cards, plan, engine, warm-up, answer; in the foreground, or handed to a launcher."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gaudi_launch.cli.options import shared
from gaudi_launch.messages import text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gaudi_launch.cli.options import Prepared
    from gaudi_launch.planning.plan import Plan
    from gaudi_launch.services.job import ServiceJob
    from gaudi_launch.services.supervise import Outcome, Watcher

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
_SERVICE = "Service"


@dataclass(frozen=True)
class How:
    """How serve runs, beside what it runs. ``once`` stops the engine when it is ready."""

    name: str | None = None
    no_doctor: bool = False
    quiet: bool = False
    patience: str | None = None
    restart: str = "no"
    detach: bool = False
    once: bool = False
    place: str | None = None
    image: str | None = None


@dataclass(frozen=True)
class Started:
    """A service that ran (``outcome``), or was handed to a launcher of its own (None)."""

    name: str
    outcome: Outcome | None
    log: Path
    plan: Plan


@app.command()
@shared
def serve(
    asked: dict[str, Any],
    name: str | None = typer.Option(
        None, "--name", help="The service's name (default: from model and port).", rich_help_panel=_SERVICE
    ),
    detach: bool = typer.Option(
        False, "--detach", help="Return when it answers; 'ps', 'logs', 'stop' find it.", rich_help_panel=_SERVICE
    ),
    no_wait: bool = typer.Option(
        False, "--no-wait", help="With --detach: return at once.", rich_help_panel=_SERVICE
    ),
    restart: str = typer.Option(
        "no", "--restart", metavar="no|on-failure", help="Start it again when it fails.", rich_help_panel=_SERVICE
    ),
    no_doctor: bool = typer.Option(
        False, "--no-doctor", help="Start although the machine's check fails.", rich_help_panel=_SERVICE
    ),
    quiet: bool = typer.Option(
        False, "--quiet", help="Progress only, without the engine's own lines.", rich_help_panel=_SERVICE
    ),
    patience: str | None = typer.Option(
        None,
        "--phase-timeout",
        metavar="SECONDS",
        help="Longest time without progress in any phase.",
        rich_help_panel=_SERVICE,
    ),
    place: str | None = typer.Option(
        None, "--in", metavar="docker", help="Start the engine in a container.", rich_help_panel=_SERVICE
    ),
    image: str | None = typer.Option(
        None, "--image", help="With --in docker: another image.", rich_help_panel=_SERVICE
    ),
) -> None:
    """Start a model and stay with it: cards, plan, engine, warm-up, answer.

    -w demo is a small model that needs no card and no download from a hub.
    """
    from gaudi_launch.errors import ExitCode, LaunchError

    if no_wait and not detach:
        raise LaunchError("services.no_wait", ExitCode.USAGE)
    started = start(asked, How(name, no_doctor, quiet, patience, restart, detach, place=place, image=image))
    if started.outcome is not None:
        _finish(started.outcome, started)
    elif no_wait:
        print(text("services.starting", name=started.name), file=sys.stderr)
    else:
        _wait(started)


def start(asked: dict[str, Any], how: How) -> Started:
    """Everything of serve but its end."""
    from gaudi_launch.cli.options import prepare
    from gaudi_launch.engines.registry import check_engine
    from gaudi_launch.planning.asked import number
    from gaudi_launch.services import launch, state
    from gaudi_launch.services.job import check_restart
    from gaudi_launch.services.supervise import LIMITS

    limits = dict(LIMITS)
    if how.patience is not None:
        limits = dict.fromkeys(limits, float(number("--phase-timeout", how.patience)))
    if how.name is not None:
        state.check_name(how.name)
    check_restart(how.restart)
    _check_place(asked, how)
    prepared = prepare(asked, must_exist=True, in_image=how.place is not None)
    if how.place is None:
        check_engine(prepared.engine, prepared.installed)
    launch.check_model(prepared.model, prepared.request)
    if not prepared.engine.needs_cards:
        return _run(prepared, prepared.plan(), how, limits, ())
    from gaudi_launch.host.machine import load
    from gaudi_launch.paths import machine_root
    from gaudi_launch.planning.planner import place
    from gaudi_launch.services.reservation import claim

    request, engine = prepared.request, prepared.engine
    # refuse what cannot be before waiting for anybody's cards, and fetch an image before holding them
    first = _housed(prepared, prepared.plan(), how)
    if first.container is not None:
        from gaudi_launch.services.containers import make_ready

        _check_built(first)
        make_ready(first.container, _say)
    _tell_orphans()
    with claim(lambda: load(asked["machine"]), lambda host: place(request, host, engine), machine_root()) as (
        chosen,
        held,
    ):
        return _run(prepared, prepared.plan(chosen), how, limits, held)


def _check_place(asked: dict[str, Any], how: How) -> None:
    """Raises LaunchError (USAGE) for words of --in and --image that cannot be together, or with the others."""
    from gaudi_launch.engines.registry import on_cpu
    from gaudi_launch.errors import ExitCode, LaunchError

    if how.place not in (None, "docker"):
        raise LaunchError("render.place", ExitCode.USAGE, found=how.place)
    if how.image is not None and how.place is None:
        raise LaunchError("render.image_alone", ExitCode.USAGE)
    if how.place is not None and asked["python"]:
        raise LaunchError("render.python_inside", ExitCode.USAGE)
    if how.place is not None and (asked["model"] == "demo" or on_cpu(asked["engine"] or "auto")):
        raise LaunchError("render.cpu_inside", ExitCode.USAGE)


def _housed(prepared: Prepared, plan: Plan, how: How) -> Plan:
    """The plan in the home that was asked for."""
    if how.place is None:
        return plan
    from gaudi_launch.render.home import in_docker

    return in_docker(plan, prepared.host, prepared.request.environment, how.image)


def _check_built(plan: Plan) -> None:
    """An image that nobody publishes must be built before. Raises LaunchError (MACHINE) with the command."""
    from gaudi_launch.engines.releases import release_of
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.services.containers import check_docker, has_image

    check_docker(needs_cards=bool(plan.placement.modules))
    release = release_of(plan.engine.label, plan.engine.version)
    image = plan.container.image if plan.container is not None else ""
    if release is not None and image == release.built_image and not has_image(image):
        raise LaunchError("render.not_built", ExitCode.MACHINE, image=image, engine=release.engine)


def _run(prepared: Prepared, plan: Plan, how: How, limits: Mapping[str, float], cards: tuple[int, ...]) -> Started:
    from gaudi_launch.paths import machine_root
    from gaudi_launch.services import detach, launch, registry, service, state
    from gaudi_launch.services.job import job_of

    launch.check_port(plan.url)
    _host, port = launch.address(plan.url)
    name = how.name or state.default_name(prepared.model.name, str(port))
    if not how.no_doctor:
        from gaudi_launch.doctor import stop_on_failures

        stop_on_failures(prepared.findings(_housed(prepared, plan, how)))
    plan = prepared.trusted(plan)
    cached = prepared.cached(plan)
    plan = _housed(prepared, cached.plan if cached is not None else plan, how)
    job = job_of(
        plan,
        prepared.request,
        name,
        limits=limits,
        # a plan for another root is not about this machine's CPUs; a container has its own word for them
        bind=machine_root() == Path("/") and plan.container is None,
        restart=how.restart,
        cached=cached,
    )
    environment = {
        **os.environ,
        **{k: v for k, v in prepared.request.environment.items() if k == "VLLM_API_KEY"},
    }
    with registry.hold(name) as held:
        log = state.service_dir(name) / service.LOG
        if how.detach:
            _screen(plan, log, True).begin()
            detach.spawn(job, plan.to_json(), environment, (held, *cards))
            return Started(name, None, log, plan)
        return Started(name, _stay(job, plan, environment, log, how), log, plan)


def _stay(job: ServiceJob, plan: Plan, environment: Mapping[str, str], log: Path, how: How) -> Outcome:
    """Run the engine in the foreground until it ends."""
    from gaudi_launch.services import service, state
    from gaudi_launch.services.watchers import Once

    screen = _screen(plan, log, how.quiet)
    folder = state.service_dir(job.name)
    state.write(folder, "plan.json", plan.to_json())
    state.write(folder, "job.json", job.to_json())
    watcher: Watcher = Once(screen) if how.once else screen
    try:
        screen.begin()
        return service.run(job, watcher, environment, _say, once=how.once)
    finally:
        screen.close()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _screen(plan: Plan, log: Path, quiet: bool) -> Any:
    from gaudi_launch.cli.screen import Screen

    return Screen(plan, str(log), quiet)


def _tell_orphans() -> None:
    """Say that cards may be held by what an earlier launcher left."""
    from gaudi_launch.services.orphans import orphans

    found = orphans()
    if found:
        _say(text("services.orphans_there", count=len(found)))


def _wait(started: Started) -> None:
    """Show the detached start until it answers. Ctrl-C ends the showing only."""
    import time

    from gaudi_launch.cli.screen import say_ready
    from gaudi_launch.errors import ExitCode

    begin = time.monotonic()
    try:
        # loading it takes a moment too, in which Ctrl-C may come
        from gaudi_launch.cli.waiting import until_ready

        ready = until_ready(started.name)
    except KeyboardInterrupt:
        _say(text("services.goes_on", name=started.name))
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    model = str(ready.state.get("served") or started.plan.model["name"])
    path = str(ready.state.get("answers") or "")
    say_ready(model, ready.url, round(time.monotonic() - begin), str(started.log), path)
    print(text("services.stop_hint", name=started.name), flush=True)


def _finish(outcome: Outcome, started: Started) -> None:
    from gaudi_launch.errors import ExitCode
    from gaudi_launch.services.failure import failure

    if outcome.kind != "stopped":
        raise failure(outcome, started.log, str(started.plan.model.get("path") or "MODEL"))
    print(text("serve.stopped"), file=sys.stderr)
    raise typer.Exit(int(ExitCode.INTERRUPTED))
