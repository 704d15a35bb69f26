"""Start a model: cards, plan, engine, warm-up, answer.

Supervised here, or passed to a detached launcher.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.engines.registry import setup_image
from gaudi_launch.core.launch.options import LaunchOptions
from gaudi_launch.core.launch.prepare import checked, prepare, set_up_demo
from gaudi_launch.core.planning.exported import SECRETS
from gaudi_launch.core.services import listener, preflight, service
from gaudi_launch.core.services.containers import (
    check_program,
    has_image,
    make_ready,
    settable_limits,
)
from gaudi_launch.core.services.state import registry, secret_file, store
from gaudi_launch.core.services.state.job import Supervision, check_restart, job_of

if TYPE_CHECKING:
    from gaudi_launch.core.launch.prepare import CheckedPlan, Prepared
    from gaudi_launch.core.launch.report import Reporter
    from gaudi_launch.core.planning.container import Container
    from gaudi_launch.core.planning.plan import Plan
    from gaudi_launch.core.services.process.supervise import EngineOutcome
    from gaudi_launch.core.services.state.job import ServiceJob


@dataclass(frozen=True)
class ServeMode:
    """The way of serving, independent of the model."""

    name: str | None = None
    no_doctor: bool = False
    quiet: bool = False
    phase_timeout: str | None = None
    restart: str = "no"
    detach: bool = False
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

    Without a port it takes that of the earlier service of its name, else the next free one from its
    engine's default. Raises LaunchError.
    """
    from gaudi_launch.core.launch.saved_plan import merged, on_this_machine

    if how.name is not None:
        store.check_name(how.name)
    options = on_this_machine(options)
    given = merged(options)
    demo = registry.read("demo") if given.model == "demo" else None
    if given.model == "demo" and how.name is None and not (given.port and demo and demo.alive):
        how = replace(how, name="demo")
    if given.port is not None:
        return _start(options, how, reporter)
    # a name from the model contains the port
    earlier = registry.read(how.name) if how.name else None
    if earlier is not None and earlier.alive:
        raise LaunchError("services.name_taken", ExitCode.USAGE, name=earlier.name)
    if earlier is not None and earlier.url:
        port = listener.address(earlier.url)[1]
        return _start(replace(options, port=str(port)), how, reporter)
    while True:
        try:
            return _start(options, how, reporter)
        except LaunchError as error:
            values = error.text.values
            if error.id not in ("serve.port_taken", "services.port_reserved"):
                raise
            by_port = store.default_name(given.model or "", str(values["port"]))
            if how.name is None and registry.read(by_port) is not None:
                raise
            options = replace(options, port=str(values["free"]))
            reporter.say(text("serve.next_port", port=values["port"], free=values["free"]))


def _start(options: LaunchOptions, how: ServeMode, reporter: Reporter) -> StartedService:
    """Start a model at the port of its options, else at its engine's default."""
    from gaudi_launch.core.planning.parse import seconds
    from gaudi_launch.core.services.process.supervise import LIMITS

    limits = dict(LIMITS)
    if how.phase_timeout is not None:
        limits = dict.fromkeys(limits, seconds("--phase-timeout", how.phase_timeout))
    check_restart(how.restart)
    _check_place(options, how)
    if options.model == "demo" and options.python is None and how.place is None:
        set_up_demo(options, reporter)
    checked = _startable(options, how, reporter)
    prepared = checked.prepared
    # an image is fetched before cards are reserved
    _make_ready(checked.plan, reporter)
    launching = _Launch(prepared, how, limits, reporter)
    if prepared.engine.identity.simulated or not prepared.engine.needs_cards:
        return _run(launching, prepared.plan(), ())
    from gaudi_launch.core.launch.machine import load
    from gaudi_launch.core.planning.planner import place
    from gaudi_launch.core.services.state.reservation import claim

    request, engine = prepared.request, prepared.engine
    _report_orphans(reporter)
    with claim(
        lambda: load(options.machine), lambda host: place(request, host, engine), machine_root()
    ) as (
        chosen,
        held,
    ):
        return _run(launching, prepared.plan(chosen), held)


def _startable(options: LaunchOptions, how: ServeMode, reporter: Reporter) -> CheckedPlan:
    """Return the plan that starts; fetch and convert what it needs.

    Raises LaunchError where `plan` says that it is refused, or that the user has something to do.
    """
    from gaudi_launch.core.launch.model_needs import clear_old_scales
    from gaudi_launch.core.launch.model_setup import bring

    in_image = how.place is not None

    def read() -> CheckedPlan:
        prepared = prepare(options, in_image=in_image, secret_file=not in_image)
        found = checked(prepared, _housed(prepared, prepared.plan(), how))
        found.refuse(no_doctor=how.no_doctor)
        return found

    found = read()
    provision = found.prepared.provision
    if provision is not None and any(not step.done for step in provision.steps):
        bring(found.prepared.request, provision, reporter)
        # what was fetched decides more than a name
        found = read()
        provision = found.prepared.provision
    if provision is not None:
        clear_old_scales(provision)
    return found


def _make_ready(plan: Plan, reporter: Reporter) -> None:
    """Prepare a plan's container, if it has one. Raises LaunchError."""
    if plan.container is None:
        return
    _check_built(plan.container, plan)
    make_ready(plan.container, reporter.say)


def _check_place(options: LaunchOptions, how: ServeMode) -> None:
    """Raise LaunchError (USAGE) for incompatible --in, --image and other options."""
    from gaudi_launch.core.engines.docker_command import PROGRAMS
    from gaudi_launch.core.engines.registry import entry

    if how.place not in (None, *PROGRAMS):
        known = ", ".join(PROGRAMS)
        raise LaunchError("render.place", ExitCode.USAGE, found=how.place, known=known)
    if how.image is not None and how.place is None:
        raise LaunchError("render.image_alone", ExitCode.USAGE)
    if how.place is not None and options.python:
        raise LaunchError("render.python_inside", ExitCode.USAGE)
    if how.place is None:
        return
    is_demo = options.model == "demo"
    engine = options.engine or "auto"
    if entry(engine).machine:
        raise LaunchError("simulated.here_only", ExitCode.USAGE)
    if is_demo and engine != "auto" and not entry(engine).built:
        raise LaunchError("render.demo_inside", ExitCode.USAGE)


def _housed(prepared: Prepared, plan: Plan, how: ServeMode) -> Plan:
    """Return the plan in the requested container; unchanged without one."""
    if how.place is None:
        return plan
    from gaudi_launch.core.render.in_container import ContainerPlace, in_container

    # an engine without cards needs no rights of root: the image's user has fewer
    user = f"{os.getuid()}:{os.getgid()}" if os.getuid() else ""
    place = ContainerPlace(how.place, user, settable_limits(how.place), how.image)
    return in_container(plan, prepared.host, prepared.request.environment, place)


def _check_built(container: Container, plan: Plan) -> None:
    """Check that an unpublished image was built.

    Raises LaunchError (MACHINE) with the command.
    """
    program = container.program
    check_program(program, needs_cards=bool(container.modules))
    engine = _built_by(plan, container.image)
    if engine is None or has_image(container.image, program):
        return
    values = {"image": container.image, "engine": engine, "program": program}
    if container.confined:
        raise LaunchError("render.cpu_inside", ExitCode.MACHINE, **values)
    raise LaunchError("render.not_built", ExitCode.MACHINE, **values)


def _built_by(plan: Plan, image: str) -> str | None:
    """Return the arguments of ``setup`` that build an image.

    Return None for a published one.
    """
    from gaudi_launch.core.engines.releases import release_of

    if image == setup_image(plan.engine.name):
        return plan.engine.name
    release = release_of(plan.engine.label, plan.engine.version)
    if release is None:
        return None
    return {
        release.built_image: release.engine,
        release.scale_out_image: f"{release.engine} --scale-out",
    }.get(image)


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
    from gaudi_launch.core.services.process import detach

    prepared, how = launching.prepared, launching.how
    _host, port = listener.address(plan.url)
    name = how.name or store.default_name(prepared.model.name, str(port))
    if not how.no_doctor:
        from gaudi_launch.core.doctor.runner import stop_on_failures

        stop_on_failures(prepared.findings(_housed(prepared, plan, how)))
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
    given = prepared.request.environment
    environment = {**os.environ, **{name: given[name] for name in SECRETS if name in given}}
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
    how = launching.how
    folder = store.service_dir(job.name)
    screen = launching.reporter.screen(plan, folder / service.LOG, quiet=how.quiet)
    store.write(folder, "plan.json", plan.to_json())
    store.write(folder, "job.json", job.to_json())
    try:
        screen.begin()
        return service.run(job, screen, environment, launching.reporter.say)
    finally:
        screen.close()


def _report_orphans(reporter: Reporter) -> None:
    """Report that processes of an earlier launcher may occupy cards."""
    from gaudi_launch.core.services.state.orphans import orphans

    found = orphans()
    if found:
        reporter.say(text("services.orphans_there", count=len(found)))
