"""Start a model: cards, plan, engine, warm-up, answer.

Supervised here, or passed to a detached launcher.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.messages import text

if TYPE_CHECKING:
    from gaudi_launch.app.prepare import Prepared
    from gaudi_launch.app.report import Reporter
    from gaudi_launch.planning.plan import Plan
    from gaudi_launch.services.process.supervise import EngineOutcome, Watcher
    from gaudi_launch.services.state.job import ServiceJob


@dataclass(frozen=True)
class ServeMode:
    """The way of serving, independent of the model.

    ``once`` stops the engine when it is ready.
    """

    name: str | None = None
    no_doctor: bool = False
    quiet: bool = False
    phase_timeout: str | None = None
    restart: str = "no"
    detach: bool = False
    once: bool = False
    place: str | None = None
    image: str | None = None


@dataclass(frozen=True)
class StartedService:
    """A service that ran (``outcome``), or was passed to a detached launcher (None)."""

    name: str
    outcome: EngineOutcome | None
    log: Path
    plan: Plan


def start(options: LaunchOptions, how: ServeMode, reporter: Reporter) -> StartedService:
    """Start a model; return when it ended, or is detached (``how.detach``).

    Raises LaunchError.
    """
    from gaudi_launch.app.prepare import prepare
    from gaudi_launch.engines.registry import check_engine
    from gaudi_launch.planning.parse import seconds
    from gaudi_launch.services import preflight
    from gaudi_launch.services.process.supervise import LIMITS
    from gaudi_launch.services.state import store
    from gaudi_launch.services.state.job import check_restart

    limits = dict(LIMITS)
    if how.phase_timeout is not None:
        limits = dict.fromkeys(limits, seconds("--phase-timeout", how.phase_timeout))
    if how.name is not None:
        store.check_name(how.name)
    check_restart(how.restart)
    _check_place(options, how)
    prepared = prepare(
        options, bring_with=reporter, in_image=how.place is not None, secret_file=how.place is None
    )
    if how.place is None:
        check_engine(prepared.engine, prepared.installed)
    is_simulated = prepared.engine.identity.simulated
    if not is_simulated:
        preflight.check_model(prepared.model, prepared.request)
    if is_simulated or not prepared.engine.needs_cards:
        return _run(_Launch(prepared, how, limits, reporter), prepared.plan(), ())
    from gaudi_launch.app.machine import load
    from gaudi_launch.paths import machine_root
    from gaudi_launch.planning.planner import place
    from gaudi_launch.services.state.reservation import claim

    request, engine = prepared.request, prepared.engine
    # refuse impossible options before waiting for cards, and fetch an image before reserving them
    first = _housed(prepared, prepared.plan(), how)
    if first.container is not None:
        from gaudi_launch.services.containers import make_ready

        _check_built(first)
        make_ready(first.container, reporter.say)
    _report_orphans(reporter)
    with claim(
        lambda: load(options.machine), lambda host: place(request, host, engine), machine_root()
    ) as (
        chosen,
        held,
    ):
        return _run(_Launch(prepared, how, limits, reporter), prepared.plan(chosen), held)


def _check_place(options: LaunchOptions, how: ServeMode) -> None:
    """Raise LaunchError (USAGE) for incompatible --in, --image and other options."""
    from gaudi_launch.engines.registry import on_cpu, simulated_machine

    if how.place not in (None, "docker"):
        raise LaunchError("render.place", ExitCode.USAGE, found=how.place)
    if how.image is not None and how.place is None:
        raise LaunchError("render.image_alone", ExitCode.USAGE)
    if how.place is not None and options.python:
        raise LaunchError("render.python_inside", ExitCode.USAGE)
    if how.place is None:
        return
    is_demo = options.model == "demo"
    engine = options.engine or "auto"
    if simulated_machine(engine):
        raise LaunchError("simulated.here_only", ExitCode.USAGE)
    if on_cpu(engine) or (is_demo and engine == "auto"):
        raise LaunchError("render.cpu_inside", ExitCode.USAGE)
    if is_demo:
        raise LaunchError("render.demo_inside", ExitCode.USAGE)


def _housed(prepared: Prepared, plan: Plan, how: ServeMode) -> Plan:
    """Return the plan in the requested target."""
    if how.place is None:
        return plan
    from gaudi_launch.render.in_container import in_docker

    return in_docker(plan, prepared.host, prepared.request.environment, how.image)


def _check_built(plan: Plan) -> None:
    """Check that an unpublished image was built.

    Raises LaunchError (MACHINE) with the command.
    """
    from gaudi_launch.engines.releases import release_of
    from gaudi_launch.services.containers import check_docker, has_image

    check_docker(needs_cards=bool(plan.placement.modules))
    release = release_of(plan.engine.label, plan.engine.version)
    image = plan.container.image if plan.container is not None else ""
    if (
        release is None
        or image not in (release.built_image, release.scale_out_image)
        or has_image(image)
    ):
        return
    engine = release.engine
    if image == release.scale_out_image:
        engine = f"{engine} --scale-out"
    raise LaunchError("render.not_built", ExitCode.MACHINE, image=image, engine=engine)


@dataclass(frozen=True)
class _Launch:
    """One launch. ``limits`` are the seconds that a phase may last without progress."""

    prepared: Prepared
    how: ServeMode
    limits: Mapping[str, float]
    reporter: Reporter


def _run(launching: _Launch, plan: Plan, cards: tuple[int, ...]) -> StartedService:
    """Lock the name and start the engine.

    ``cards`` are the open lock files of its cards.
    """
    from gaudi_launch.paths import machine_root
    from gaudi_launch.services import listener, preflight, service
    from gaudi_launch.services.process import detach
    from gaudi_launch.services.state import registry, secret_file, store
    from gaudi_launch.services.state.job import Supervision, job_of

    prepared, how = launching.prepared, launching.how
    preflight.check_port(plan.url)
    _host, port = listener.address(plan.url)
    name = how.name or store.default_name(prepared.model.name, str(port))
    if not how.no_doctor:
        from gaudi_launch.doctor import stop_on_failures

        stop_on_failures(prepared.findings(_housed(prepared, plan, how)))
    plan = prepared.trusted(plan)
    cached = prepared.cached(plan)
    plan = _housed(prepared, cached.plan if cached is not None else plan, how)
    secrets = secret_file.SecretFile(store.service_dir(name), prepared.request.secret_options)
    plan = secrets.named_in(plan)
    supervision = Supervision(
        launching.limits,
        # a plan for another root does not concern this machine's CPUs; a container has an option
        # for them
        bind=machine_root() == Path("/") and plan.container is None,
        restart=how.restart,
    )
    job = job_of(plan, prepared.request, name, supervision, cached)
    environment = {
        **os.environ,
        **{k: v for k, v in prepared.request.environment.items() if k == "VLLM_API_KEY"},
    }
    with preflight.hold_port(plan.url, name) as ports, registry.hold(name) as held:
        log = store.service_dir(name) / service.LOG
        secrets.write()
        if how.detach:
            launching.reporter.screen(plan, log, quiet=True).begin()
            detach.spawn(job, plan.to_json(), environment, (held, *cards, *ports))
            return StartedService(name, None, log, plan)
        return StartedService(name, _stay(job, plan, environment, launching), log, plan)


def _stay(
    job: ServiceJob, plan: Plan, environment: Mapping[str, str], launching: _Launch
) -> EngineOutcome:
    """Run the engine in the foreground until it ends."""
    from gaudi_launch.services import service
    from gaudi_launch.services.process.watchers import Once
    from gaudi_launch.services.state import store

    how = launching.how
    folder = store.service_dir(job.name)
    screen = launching.reporter.screen(plan, folder / service.LOG, quiet=how.quiet)
    store.write(folder, "plan.json", plan.to_json())
    store.write(folder, "job.json", job.to_json())
    watcher: Watcher = Once(screen) if how.once else screen
    try:
        screen.begin()
        return service.run(job, watcher, environment, launching.reporter.say, once=how.once)
    finally:
        screen.close()


def _report_orphans(reporter: Reporter) -> None:
    """Report that processes of an earlier launcher may occupy cards."""
    from gaudi_launch.services.state.orphans import orphans

    found = orphans()
    if found:
        reporter.say(text("services.orphans_there", count=len(found)))
